// Functions whose stack frames are made in every way that compilers know; the
// compiler's own report of them (-fstack-usage) is compared with what is read
// from their disassembly.
void use(void *);
int get(int);

int leaf(int a) { return a + 1; }
int small(int a) { int x = a; use(&x); return x; }
int middle(void) { char b[700]; use(b); return b[3]; }

// Around the limits of immediate operands.
int below_2k(void) { char b[2032]; use(b); return b[3]; }
int at_2k(void) { char b[2048]; use(b); return b[3]; }
int at_4k(void) { char b[4080]; use(b); return b[3]; }
int beyond_4k(void) { char b[5000]; use(b); return b[3]; }
int at_64k(void) { char b[65520]; use(b); return b[3]; }
int beyond_64k(void) { char b[70000]; use(b); return b[3]; }
int megabytes(void) { char b[3 << 20]; use(b); return b[3]; }

// Ways through that need no frame, or another one.
int early_return(int n) { char b[100]; if (!n) return 3; use(b); return b[1]; }
int tail_call(int n) { char b[3000]; if (n > 4) return get(n); use(b); use(b + get(n)); return b[1]; }
int loop(int *p, int n)
{
	int s = 0;
	if (n < 0)
		return 0;
	while (n--)
		s += p[n];
	if (s > 7) {
		long q[90];
		use(q);
		s += get(s) + get(n) + (int)q[4];
	}
	return s;
}
int table(int n)
{
	switch (n) {
	case 0: return get(1);
	case 1: return get(5) + 1;
	case 2: { char b[64]; use(b); return b[0]; }
	case 3: return 7;
	case 4: return get(2) * get(3);
	case 5: use(0); return 1;
	default: return -1;
	}
}

// Many saved registers and arguments on the stack.
int many(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j)
{
	char q[9000];
	use(q);
	return get(a) + get(b) + get(c) + get(d) + get(e) + get(f) + get(g) + get(h) + get(i) + get(j) + q[2];
}
int arguments(int a) { int x[5]; use(x); return many(a, a, a, a, a, a, a, x[1], x[2], x[3]); }
int variadic(int n, ...)
{
	__builtin_va_list list;
	__builtin_va_start(list, n);
	int r = __builtin_va_arg(list, int) + get(n);
	__builtin_va_end(list);
	return r;
}
int aligned(void) { char b[64] __attribute__((aligned(64))); use(b); return b[0]; }
double floating(double a, double b) { char q[40]; double c = a * b; use(q); return c * a + b; }

// Sizes that only run time tells.
int vla(int n) { char b[n]; use(b); return b[0]; }
int vla_and_more(int n) { char c[300]; char b[n]; use(b); use(c); return b[0] + c[1]; }
// A fixed size, but after the prologue.
int later(int n) { if (n) use(__builtin_alloca(4096)); return get(n); }

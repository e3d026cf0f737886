/*
 * Test payload: a bare S-mode program that checks the firmware call by call and
 * reports in TAP on the debug console.  Hart 0 directs, the others wait in WFI
 * for a job and an IPI.  It reboots the machine once on its way and ends with
 * power-off: success if every test passed, failure otherwise.
 */
#include "platform.h"

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long u64;
typedef _Bool bool;

enum { BASE = 0x10, TIME = 0x54494d45, IPI = 0x735049, RFENCE = 0x52464e43,
       HSM = 0x48534d, SRST = 0x53525354, DBCN = 0x4442434e, PMU = 0x504d55 };
enum { OK = 0, NOT_SUPPORTED = -2, INVALID_PARAM = -3, INVALID_ADDRESS = -5,
       ALREADY_AVAILABLE = -6 };
enum { STARTED = 0, STOPPED = 1, SUSPENDED = 4 };

#define FIRMWARE	0x80000000UL
#define SECOND		10000000UL	/* virt's timer runs at 10 MHz */
#define KEY		0x5a5a0000UL	/* opaque = KEY + hartid */

extern u8 secondary_entry[];

#define load(p)		__atomic_load_n(p, __ATOMIC_SEQ_CST)
#define store(p, v)	__atomic_store_n(p, v, __ATOMIC_SEQ_CST)
#define increment(p)	__atomic_add_fetch(p, 1, __ATOMIC_SEQ_CST)
#define csr_read(csr) ({ u64 v_; asm volatile("csrr %0, " #csr : "=r"(v_) :: "memory"); v_; })
#define csr_write(csr, v)	asm volatile("csrw " #csr ", %0" :: "r"((u64)(v)) : "memory")
#define csr_clear(csr, v)	asm volatile("csrc " #csr ", %0" :: "r"((u64)(v)) : "memory")
#define csr_set(csr, v)		asm volatile("csrs " #csr ", %0" :: "r"((u64)(v)) : "memory")
#define wfi()			asm volatile("wfi" ::: "memory")
#define sfence()		asm volatile("sfence.vma" ::: "memory")

struct ret { long error; u64 value; };

static struct ret sbi(u64 ext, u64 fid, u64 x0, u64 x1, u64 x2, u64 x3, u64 x4)
{
	register u64 a0 asm("a0") = x0, a1 asm("a1") = x1, a2 asm("a2") = x2;
	register u64 a3 asm("a3") = x3, a4 asm("a4") = x4;
	register u64 a6 asm("a6") = fid, a7 asm("a7") = ext;

	asm volatile("ecall" : "+r"(a0), "+r"(a1)
		     : "r"(a2), "r"(a3), "r"(a4), "r"(a6), "r"(a7) : "memory");
	return (struct ret){ a0, a1 };
}

#define call(ext, fid, ...)	call_(ext, fid, ##__VA_ARGS__, 0, 0, 0, 0, 0)
#define call_(e, f, a, b, c, d, g, ...)	sbi(e, f, (u64)(a), (u64)(b), (u64)(c), (u64)(d), (u64)(g))
#define error_of(...)	(call(__VA_ARGS__).error)

/* --- TAP on the debug console --- */

/* Outside every loaded image, so that it survives the reboot. */
static struct { u64 magic, tests, failures; } *const kept = (void *)0x90000000UL;
#define SECOND_BOOT	0x7365636f6e64UL

static void print(const char *s)
{
	u64 n = 0;

	while (s[n])
		n++;
	call(DBCN, 0, n, s, 0);
}

static void print_number(u64 v)
{
	char buf[24], *p = buf + sizeof(buf);

	*--p = 0;
	do
		*--p = '0' + v % 10;
	while (v /= 10);
	print(p);
}

static void ok(bool good, const char *name)
{
	print(good ? "ok " : "not ok ");
	print_number(++kept->tests);
	print(" ");
	print(name);
	print("\n");
	kept->failures += !good;
}

static void __attribute__((noreturn)) power_off(void)
{
	print("1..");
	print_number(kept->tests);
	print("\n");
	call(SRST, 0, 0, kept->failures != 0);
	for (;;)
		wfi();
}

void __attribute__((interrupt("supervisor"), aligned(4))) unexpected(void)
{
	print("# scause ");
	print_number(csr_read(scause));
	print(" sepc ");
	print_number(csr_read(sepc));
	print("\n");
	ok(0, "unexpected trap");
	power_off();
}

/* --- time, and the other harts --- */

static u64 now(void)
{
	return csr_read(time);
}

/* Hart 0 sleeps 1 ms; it has STIE set and SIE clear, so WFI returns. */
static void nap(void)
{
	call(TIME, 0, now() + SECOND / 1000);
	wfi();
}

#define wait_for(cond) ({						\
	u64 end_ = now() + 60 * SECOND; bool r_;			\
	while (!(r_ = (cond)) && now() < end_)				\
		nap();							\
	r_; })

static u64 harts;				/* from the device tree */
static u32 arrived, done, wrong;		/* counted by the secondaries */
static u32 ipis[MAX_HARTS];
static void (*job[MAX_HARTS])(u64 hart);

static void wait_ipi(void)
{
	while (!(csr_read(sip) & IRQ_SSI))
		wfi();
	csr_clear(sip, IRQ_SSI);
}

void __attribute__((noreturn)) secondary(u64 hart, u64 opaque, u64 satp, u64 sstatus)
{
	void (*f)(u64);

	if (opaque != KEY + hart || satp || sstatus & 2 || csr_read(sie) ||
	    csr_read(sip) & (IRQ_SSI | IRQ_STI))
		increment(&wrong);
	csr_write(sie, IRQ_SSI);
	increment(&arrived);
	for (;;) {
		wait_ipi();
		increment(&ipis[hart]);
		f = __atomic_exchange_n(&job[hart], 0, __ATOMIC_SEQ_CST);
		if (f) {
			f(hart);
			increment(&done);
		}
	}
}

/* Hand the job to all other harts; returns how many there are. */
static u64 post(void (*f)(u64))
{
	u64 h;

	store(&done, 0);
	for (h = 1; h < harts; h++)
		store(&job[h], f);
	call(IPI, 0, 0, -1);
	csr_clear(sip, IRQ_SSI);		/* "all" includes hart 0 */
	return harts - 1;
}

static bool all_others_are(u64 state)
{
	u64 h;

	for (h = 1; h < harts; h++)
		if (call(HSM, 2, h).value != state)
			return 0;
	return 1;
}

static bool start_all(void)
{
	bool good = 1;
	u64 h;

	store(&arrived, 0);
	for (h = 1; h < harts; h++)
		good &= error_of(HSM, 0, h, secondary_entry, KEY + h) == OK;
	return good && wait_for(load(&arrived) == harts - 1) && all_others_are(STARTED);
}

static void job_stop(u64 hart)
{
	(void)hart;
	csr_write(sie, 0);
	call(HSM, 1);
	increment(&wrong);			/* must not return */
}

/* --- the device tree the firmware hands over --- */

static u32 be32(const u8 *p)
{
	return (u32)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
}

static bool starts(const void *s, const char *prefix)
{
	const char *p = s;

	while (*prefix)
		if (*p++ != *prefix++)
			return 0;
	return 1;
}

/*
 * Counts the harts, and what is right about the reservation: reg and no-map.
 * -1 if the tree is broken or an APLIC of M-mode is left to a driver.
 */
static int walk(const u8 *fdt, u64 *cpus)
{
	const u8 *p = fdt + be32(fdt + 8), *name;
	u32 token, len, depth = 0;
	bool in_cpus = 0, in_fw = 0, delegates = 0, compatible = 0;
	int right = 0;

	for (; (token = be32(p)) != 9; ) {
		p += 4;
		if (token == 1) {
			depth++;
			delegates = compatible = 0;
			in_cpus = depth == 2 ? starts(p, "cpus") : in_cpus;
			in_fw = depth == 3 && starts(p, "firmware@80000000");
			*cpus += depth == 3 && in_cpus && starts(p, "cpu@");
			while (*p)
				p++;
			p = (const u8 *)(((u64)p + 4) & ~3UL);
		} else if (token == 2) {
			depth--;
		} else if (token == 3) {
			len = be32(p);
			name = fdt + be32(fdt + 12) + be32(p + 4);
			if (in_fw && starts(name, "reg"))
				right += len == 16 && be32(p + 8) == 0 &&
					 be32(p + 12) == FIRMWARE && be32(p + 16) == 0 &&
					 be32(p + 20) == 0x100000;
			if (in_fw && starts(name, "no-map"))
				right += len == 0;
			delegates |= starts(name, "riscv,delegat");
			compatible |= starts(name, "compatible");
			if (delegates && compatible)
				return -1;
			p += 8 + ((len + 3) & ~3U);
		}
	}
	return depth == 0 && p + 4 == fdt + be32(fdt + 8) + be32(fdt + 36) ? right : -1;
}

static void test_device_tree(const u8 *fdt)
{
	harts = 0;
	ok(be32(fdt) == 0xd00dfeed && walk(fdt, &harts) == 2,
	   "device tree reserves the firmware");
	print("# harts ");
	print_number(harts);
	print("\n");
}

/* --- calls that need no other hart --- */

static void test_base(void)
{
	static const u32 present[] = { 1, 2, BASE, TIME, IPI, RFENCE, HSM, SRST, DBCN };
	static const u32 absent[] = { 0, 3, 8, PMU, 0x53555350, 0x46574654, 0x0a000000 };
	bool good = 1;
	u64 i;

	for (i = 0; i < sizeof(present) / 4; i++)
		good &= call(BASE, 3, present[i]).value == 1;
	ok(good, "probe: the extensions that exist");
	for (i = 0, good = 1; i < sizeof(absent) / 4; i++)
		good &= error_of(BASE, 3, absent[i]) == OK && !call(BASE, 3, absent[i]).value;
	ok(good, "probe: the extensions that do not");
	ok(call(BASE, 0).value == 0x02000000, "specification version 2.0");
	ok(call(BASE, 1).value == 0x4d545258 && call(BASE, 2).value == 1, "implementation");
	ok(!error_of(BASE, 4) && !error_of(BASE, 5) && !error_of(BASE, 6), "machine ids");
	ok(error_of(PMU, 0) == NOT_SUPPORTED && error_of(0x0a000000, 0) == NOT_SUPPORTED,
	   "unknown extension: not supported");
	ok(error_of(BASE, 7) == NOT_SUPPORTED && error_of(TIME, 1) == NOT_SUPPORTED &&
	   error_of(IPI, 1) == NOT_SUPPORTED && error_of(RFENCE, 7) == NOT_SUPPORTED &&
	   error_of(HSM, 4) == NOT_SUPPORTED && error_of(SRST, 1) == NOT_SUPPORTED &&
	   error_of(DBCN, 3) == NOT_SUPPORTED, "unknown function: not supported");
	for (i = 3, good = 1; i <= 6; i++)
		good &= error_of(RFENCE, i, 1, 0, 0, 0, 0) == NOT_SUPPORTED;
	ok(good, "hfence: not supported");
}

/* The cause of the exception that the instruction raises, or -1. */
#define fault_of(insn, addr) ({						\
	u64 c_ = -1UL, v_, scratch_ = 0;				\
	asm volatile("lla %1, 1f\n\tcsrrw %1, stvec, %1\n\t"		\
		     "csrw scause, %0\n\t" insn "\n\t"			\
		     ".balign 4\n1:\tcsrw stvec, %1\n\tcsrr %0, scause"	\
		     : "+&r"(c_), "=&r"(v_), "+&r"(scratch_)		\
		     : "r"((u64)(addr)) : "memory"); c_; })

static void test_protection(void)
{
	ok(fault_of("ld %2, 0(%3)", FIRMWARE) == 5 && fault_of("ld %2, 0(%3)", FIRMWARE + 0xffff8) == 5,
	   "firmware memory cannot be read");
	ok(fault_of("sd %2, 0(%3)", FIRMWARE + 0x2000) == 7, "firmware memory cannot be written");
	ok(fault_of("ld %2, 0(%3)", FIRMWARE + 0x100000) >> 32 == 0xffffffff,
	   "memory behind the firmware can be read");
	ok(fault_of(".word 0", 0) == 2, "illegal instructions are the supervisor's");
}

static void test_console(void)
{
	static const char line[] = "# written at once\n";
	static char buf[8] = "unread";
	struct ret r = call(DBCN, 0, sizeof(line) - 1, line, 0);

	ok(!r.error && r.value == sizeof(line) - 1, "console write");
	r = call(DBCN, 2, '#');
	call(DBCN, 2, '\n');
	ok(!r.error && !r.value, "console write byte");
	r = call(DBCN, 1, sizeof(buf), buf, 0);
	ok(!r.error && !r.value && buf[0] == 'u', "console read without input");
	ok(error_of(DBCN, 0, 8, FIRMWARE, 0) == INVALID_PARAM &&
	   error_of(DBCN, 1, 8, FIRMWARE + 0xffff8, 0) == INVALID_PARAM &&
	   error_of(DBCN, 0, 8, 0x1000, 0) == INVALID_PARAM &&
	   error_of(DBCN, 0, 8, line, 1) == INVALID_PARAM &&
	   error_of(DBCN, 0, -1, line, 0) == INVALID_PARAM,
	   "console memory out of bounds: invalid param");
	ok(error_of(1, 0, '#') == 0 && error_of(1, 0, '\n') == 0 &&
	   error_of(2, 0) == -1, "legacy putchar and getchar");
}

static u32 timer_traps;

static void __attribute__((interrupt("supervisor"), aligned(4))) on_timer(void)
{
	timer_traps += csr_read(scause) == (1UL << 63 | 5);
	call(TIME, 0, -1);
}

static void test_timer(void)
{
	u64 start = now(), tvec = csr_read(stvec);
	bool early;

	csr_write(sie, IRQ_STI);
	ok(error_of(TIME, 0, start + SECOND) == OK && !(csr_read(sip) & IRQ_STI),
	   "timer in the future: not pending");
	call(TIME, 0, now() - 1);
	ok(wait_for(csr_read(sip) & IRQ_STI), "timer in the past: pending");
	call(TIME, 0, -1);
	ok(!(csr_read(sip) & IRQ_STI), "timer never: clears the pending one");
	start = now();
	call(TIME, 0, start + SECOND / 100);
	wfi();
	early = now() < start + SECOND / 100;
	ok(csr_read(sip) & IRQ_STI && !early, "timer wakes WFI, not early");
	csr_write(stvec, on_timer);
	csr_set(sstatus, 2);
	csr_clear(sstatus, 2);
	csr_write(stvec, tvec);
	ok(timer_traps == 1 && !(csr_read(sip) & IRQ_STI), "timer interrupt");
}

static void test_suspend_self(void)
{
	u64 start = now();
	struct ret r;

	call(TIME, 0, start + SECOND / 100);
	r = call(HSM, 3, 0, 0, 0);
	ok(r.error == OK && now() >= start + SECOND / 100, "suspend until the timer");
	ok(error_of(HSM, 3, 1) == INVALID_PARAM && error_of(HSM, 3, 0x10000000) == INVALID_PARAM &&
	   error_of(HSM, 3, 0x80000001) == INVALID_PARAM &&
	   error_of(HSM, 3, 0x90000000) == INVALID_PARAM, "suspend types: invalid param");
	ok(error_of(HSM, 3, 0x80000000, FIRMWARE, 0) == INVALID_ADDRESS,
	   "resume address: invalid address");
}

static void test_reset_params(void)
{
	ok(error_of(SRST, 0, 3, 0) == INVALID_PARAM &&
	   error_of(SRST, 0, 0xf0000000, 0) == INVALID_PARAM &&
	   error_of(SRST, 0, 0, 2) == INVALID_PARAM &&
	   error_of(SRST, 0, 1, 0xe0000000) == INVALID_PARAM, "reset arguments: invalid param");
}

/* --- hart states --- */

static void test_before_start(void)
{
	ok(call(HSM, 2, 0).value == STARTED && all_others_are(STOPPED),
	   "status: boot hart started, all others stopped");
	ok(error_of(HSM, 2, harts) == INVALID_PARAM && error_of(HSM, 2, -1) == INVALID_PARAM,
	   "status of no hart: invalid param");
	ok(error_of(HSM, 0, harts, secondary_entry, 0) == INVALID_PARAM &&
	   error_of(HSM, 0, -1, secondary_entry, 0) == INVALID_PARAM,
	   "start no hart: invalid param");
	ok(error_of(HSM, 0, 0, secondary_entry, 0) == ALREADY_AVAILABLE,
	   "start the boot hart: already available");
	ok(error_of(HSM, 0, harts - 1, FIRMWARE, 0) == INVALID_ADDRESS &&
	   error_of(HSM, 0, harts - 1, 0, 0) == INVALID_ADDRESS &&
	   error_of(HSM, 0, harts - 1, secondary_entry + 1, 0) == INVALID_ADDRESS,
	   "start address: invalid address");
	ok(error_of(IPI, 0, 0, -1) == OK && error_of(RFENCE, 0, 0, -1) == OK,
	   "IPI and fence to stopped harts: success");
	csr_clear(sip, IRQ_SSI);
}

static void test_start(void)
{
	bool good = 1;
	u64 h;

	ok(start_all(), "start every hart");
	ok(!load(&wrong), "started harts: a0, a1, satp, sstatus, sie, sip");
	for (h = 0; h < harts; h++)
		good &= error_of(HSM, 0, h, secondary_entry, KEY + h) == ALREADY_AVAILABLE;
	ok(good, "start every hart again: already available");
}

/* Stop and start all, with fences flying at them meanwhile. */
static void test_restart(u64 rounds)
{
	bool stopped = 1, started = 1, fenced = 1;
	u64 i;

	for (i = 0; i < rounds; i++) {
		post(job_stop);
		fenced &= error_of(RFENCE, 1, 0, -1, 0, 0) == OK;
		stopped &= wait_for((fenced &= error_of(RFENCE, 0, 0, -1) == OK,
				     all_others_are(STOPPED)));
		started &= start_all();
	}
	ok(stopped, "stop every hart, repeatedly");
	ok(started && !load(&wrong), "start every hart, repeatedly");
	ok(fenced, "fences while harts stop");
}

static u32 won, lost;

static void job_race(u64 hart)
{
	long e;

	if (hart == 1)
		job_stop(hart);
	while (call(HSM, 2, 1).value == STARTED && !load(&won))
		;
	e = error_of(HSM, 0, 1, secondary_entry, KEY + 1);
	increment(e == OK ? &won : e == ALREADY_AVAILABLE ? &lost : &wrong);
}

static void test_start_race(void)
{
	store(&arrived, 0);
	post(job_race);
	ok(wait_for(load(&done) == harts - 2 && load(&arrived) == 1) && load(&won) == 1 &&
	   load(&lost) == harts - 3, "all harts start one: exactly one succeeds");
}

static u32 resumed;

static void job_suspend(u64 hart)
{
	/* The IPI that wakes it must still be pending. */
	if (error_of(HSM, 3, 0, 0, hart) == OK && csr_read(sip) & IRQ_SSI)
		increment(&resumed);
	csr_clear(sip, IRQ_SSI);
}

static void job_suspend_lossy(u64 hart)
{
	call(HSM, 3, 0x80000000, secondary_entry, KEY + hart);
	increment(&wrong);			/* must not return */
}

static void test_suspend(void)
{
	u64 n = post(job_suspend);

	ok(wait_for(all_others_are(SUSPENDED)), "every hart suspends");
	ok(error_of(RFENCE, 1, 0, -1, 0, -1) == OK && all_others_are(SUSPENDED),
	   "suspended harts serve fences and stay suspended");
	call(IPI, 0, 0, -1);
	csr_clear(sip, IRQ_SSI);
	ok(wait_for(load(&done) == n) && load(&resumed) == n && all_others_are(STARTED),
	   "an IPI resumes every hart");

	store(&arrived, 0);
	post(job_suspend_lossy);
	ok(wait_for(all_others_are(SUSPENDED)), "every hart suspends, non-retentive");
	call(IPI, 0, 0, -1);
	csr_clear(sip, IRQ_SSI);
	ok(wait_for(load(&arrived) == n) && !load(&wrong) && all_others_are(STARTED),
	   "an IPI resumes every hart at its address");
}

/* --- IPIs by mask --- */

/* Send to first..last in pieces of up to 64; exactly these must receive it. */
static bool ipi_range(u64 first, u64 last, u64 pattern)
{
	bool good = 1;
	u64 h, n;

	for (h = 0; h < harts; h++)
		store(&ipis[h], 0);
	for (h = first; h <= last; h += 64) {
		n = last - h + 1;
		good &= error_of(IPI, 0, n >= 64 ? pattern : pattern & ((1UL << n) - 1), h) == OK;
	}
	if (csr_read(sip) & IRQ_SSI) {		/* hart 0 is among them */
		csr_clear(sip, IRQ_SSI);
		store(&ipis[0], 1);
	}
	for (h = first; h <= last; h++)
		if (pattern >> (h - first) % 64 & 1)
			good &= wait_for(load(&ipis[h]) == 1);
	for (h = 0; h < harts; h++)
		if (h < first || h > last || !(pattern >> (h - first) % 64 & 1))
			good &= !load(&ipis[h]);
	return good;
}

static u32 hops, hops_wanted;

/* Pass the token on.  A single lost IPI, or one that comes early, breaks the ring. */
static void job_ring(u64 hart)
{
	u64 next = hart + 1 < harts ? hart + 1 : 1, turn = hart - 1;

	for (; turn < hops_wanted; turn += harts - 1) {
		while (load(&hops) != turn)
			wait_ipi();
		increment(&hops);
		call(IPI, 0, 1, next);
	}
}

static void test_ring(u64 laps)
{
	u64 n;

	store(&hops, 0);
	hops_wanted = laps * (harts - 1);
	n = post(job_ring);
	ok(wait_for(load(&done) == n) && load(&hops) == hops_wanted, "IPI ring");
}

static void test_ipi(void)
{
	u64 last = harts - 1;

	ok(ipi_range(0, last, -1), "IPI to all by masks");
	ok(ipi_range(last, last, -1), "IPI to the last hart");
	ok(ipi_range(0, 0, -1), "IPI to itself");
	ok(ipi_range(0, last, 0x5555555555555555), "IPI to every other hart");
	if (harts > 64)
		ok(ipi_range(63, 64 < last ? 64 : last, -1) &&
		   ipi_range(60, 130 < last ? 130 : last, -1) &&
		   ipi_range(last - 63, last, 0x8000000000000001), "IPI across 64 hart words");
	ok(ipi_range(1, last, 0), "IPI to nobody");
	test_ring(harts > 64 ? 4 : 50);
	for (u64 h = 0; h < harts; h++)
		store(&ipis[h], 0);
	ok(error_of(IPI, 0, 1, harts) == INVALID_PARAM &&
	   error_of(IPI, 0, 3, last) == INVALID_PARAM &&
	   error_of(IPI, 0, 1UL << 63, harts > 63 ? harts - 63 : 0) == INVALID_PARAM &&
	   error_of(IPI, 0, 1, -2) == INVALID_PARAM &&
	   error_of(RFENCE, 0, 3, last) == INVALID_PARAM &&
	   error_of(RFENCE, 1, 1, harts, 0, 0) == INVALID_PARAM, "masks beyond the last hart: invalid param");
	nap();
	nap();
	ok(!load(&ipis[last]) && !(csr_read(sip) & IRQ_SSI), "an invalid mask sends nothing");
}

/* --- the other harts' timers --- */

static void job_timer(u64 hart)
{
	u64 due = now() + SECOND / 2000;

	(void)hart;
	csr_write(sie, IRQ_STI);
	call(TIME, 0, due);
	while (!(csr_read(sip) & IRQ_STI))
		wfi();
	if (now() < due)
		increment(&wrong);
	call(TIME, 0, -1);
	if (csr_read(sip) & IRQ_STI)
		increment(&wrong);
	csr_write(sie, IRQ_SSI);
}

/* One at a time: of two harts with each other's timer, neither would wake. */
static void test_timers(void)
{
	bool good = 1;
	u64 h;

	for (h = harts - 1; good && h >= 1; h -= h > 64 ? 7 : 1) {
		store(&done, 0);
		store(&job[h], job_timer);
		call(IPI, 0, 1, h);
		good &= wait_for(load(&done) == 1);
	}
	ok(good && !load(&wrong), "every hart has its timer");
}

/* --- remote fences --- */

static u32 rounds;

static long fence_kind(u64 kind, u64 mask, u64 base)
{
	switch (kind % 4) {
	case 0: return error_of(RFENCE, 0, mask, base);
	case 1: return error_of(RFENCE, 1, mask, base, 0xc0000000, 4096);
	case 2: return error_of(RFENCE, 1, mask, base, 0, -1);
	}
	return error_of(RFENCE, 2, mask, base, 0xc0000000, 1UL << 30, 1);
}

static void job_fence_all(u64 hart)
{
	for (u64 i = 0; i < rounds; i++)
		if (fence_kind(hart + i, 0, -1) != OK)
			increment(&wrong);
}

/* Hart pairs fence each other, each waiting for the other all the time. */
static void job_fence_pair(u64 hart)
{
	u64 partner = (hart ^ 1) < harts ? hart ^ 1 : hart;

	for (u64 i = 0; i < rounds; i++)
		if (fence_kind(i, 1, partner) != OK)
			increment(&wrong);
}

static bool run_everywhere(void (*f)(u64), u64 times)
{
	u64 n;

	rounds = times;
	n = post(f);
	f(0);
	return wait_for(load(&done) == n) && !load(&wrong);
}

#define PTE_LEAF	0xcf			/* V R W X A D */
#define PAGE		0xc0000000UL		/* where the test page is mapped */

static u64 root[512] __attribute__((aligned(4096)));
static u64 middle[512] __attribute__((aligned(4096)));
static u64 leaf[512] __attribute__((aligned(4096)));
static u64 page[2][512] __attribute__((aligned(4096)));
static u32 epoch, seen, stale;

/* Follow the page through its remappings; the TLB holds the previous one. */
static void job_follow(u64 hart)
{
	u32 e;

	(void)hart;
	csr_write(satp, 8UL << 60 | 1UL << 44 | (u64)root >> 12);
	sfence();
	for (e = 0; e <= 8; e++) {
		while (load(&epoch) != e)
			wait_ipi();
		if (*(volatile u64 *)PAGE != (e & 1))
			increment(&stale);
		increment(&seen);
	}
	csr_write(satp, 0);
	sfence();
}

/* A remapped page must be seen by every hart after each kind of fence. */
static void test_translation(void)
{
	u64 n;
	u32 e;
	bool good = 1;

	page[1][0] = 1;
	root[2] = FIRMWARE >> 2 | PTE_LEAF;	/* RAM as it is */
	root[3] = (u64)middle >> 2 | 1;
	middle[0] = (u64)leaf >> 2 | 1;
	leaf[0] = (u64)page[0] >> 2 | PTE_LEAF;
	store(&epoch, 0);
	n = post(job_follow);
	for (e = 0; e < 8; e++) {
		good &= wait_for(load(&seen) == (e + 1) * n);
		store(&leaf[0], (u64)page[(e + 1) & 1] >> 2 | PTE_LEAF);
		good &= fence_kind(e % 3 + 1, 0, -1) == OK;
		store(&epoch, e + 1);
		call(IPI, 0, 0, -1);
	}
	good &= wait_for(load(&done) == n);
	csr_clear(sip, IRQ_SSI);
	ok(good && !load(&stale), "no hart reads through a stale translation");
}

static void test_fences(void)
{
	u64 h;
	bool good = 1;

	for (h = 0; h < harts; h++)
		good &= fence_kind(h, 1, h) == OK;
	ok(good, "fence every single hart");
	ok(error_of(RFENCE, 1, 0, -1, 1, -2) == OK && error_of(RFENCE, 1, 0, 0, 0, 0) == OK,
	   "fences over odd ranges and to nobody");
	ok(run_everywhere(job_fence_pair, harts > 64 ? 20 : 200), "pairs fence each other");
	ok(run_everywhere(job_fence_all, harts > 64 ? 2 : harts > 8 ? 20 : 200),
	   "all fence all at once");
	test_translation();
}

void __attribute__((noreturn)) test_main(u64 hart, const u8 *fdt)
{
	bool again = kept->magic == SECOND_BOOT;

	if (!again)
		kept->tests = kept->failures = 0;
	test_device_tree(fdt);
	ok(hart == 0, "hart 0 boots");
	if (!again) {
		test_base();
		test_protection();
		test_console();
		test_timer();
		test_suspend_self();
		test_reset_params();
	}
	csr_write(sie, IRQ_STI);
	test_before_start();
	test_start();
	if (!again) {
		test_ipi();
		test_timers();
		test_fences();
		test_suspend();
		test_restart(harts > 64 ? 3 : 10);
		if (harts > 2)
			test_start_race();
		kept->magic = SECOND_BOOT;
		call(SRST, 0, 1, 0);
		ok(0, "cold reboot");
	}
	ok(again, "cold reboot");
	kept->magic = 0;
	power_off();
}

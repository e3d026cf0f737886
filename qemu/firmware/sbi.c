/*
 * A supervisor binary interface (SBI) for QEMU's riscv64 "virt" machine with up
 * to 512 harts: BASE, TIME, IPI, RFENCE, HSM, SRST, DBCN and the two legacy
 * console calls.  README.md says why it exists and what it leaves out.
 *
 * Everything here runs in M-mode with interrupts disabled.  Harts meet only in
 * the atomics of struct hart; no hart ever waits for another with its own
 * mailbox unattended, hence no two of them can wait for each other.
 */
#include "platform.h"

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long u64;
typedef _Bool bool;

extern u8 fw_start[], fw_end[];
void repark(void) __attribute__((noreturn));
void enter_supervisor(u64 hartid, u64 opaque, u64 addr) __attribute__((noreturn));

#define SBI_SPEC_VERSION	0x02000000	/* 2.0 */
#define SBI_IMPL_ID		0x4d545258	/* "MTRX": not a registered id */
#define SBI_IMPL_VERSION	1

enum {
	SBI_SUCCESS = 0,
	SBI_ERR_NOT_SUPPORTED = -2,
	SBI_ERR_INVALID_PARAM = -3,
	SBI_ERR_INVALID_ADDRESS = -5,
	SBI_ERR_ALREADY_AVAILABLE = -6,
};

enum {
	EXT_PUTCHAR = 0x01,
	EXT_GETCHAR = 0x02,
	EXT_BASE = 0x10,
	EXT_TIME = 0x54494d45,
	EXT_IPI = 0x735049,
	EXT_RFENCE = 0x52464e43,
	EXT_HSM = 0x48534d,
	EXT_SRST = 0x53525354,
	EXT_DBCN = 0x4442434e,
};

/* HSM states.  The pending states for stop, suspend and resume never show. */
enum { STARTED = 0, STOPPED = 1, START_PENDING = 2, SUSPENDED = 4 };

struct ret {
	long error;
	u64 value;
};

/* The trap frame of head.S. */
struct frame {
	u64 ra, sp, t[7];
	union {
		u64 a[8];
		struct ret ret;		/* a0 and a1 on return */
	};
};

enum fence_op { FENCE_I, SFENCE_VMA, SFENCE_VMA_ASID };

struct fence {
	enum fence_op op;
	u64 start, size, asid;
};

struct hart {
	u32 state;			/* HSM */
	u32 ipi;			/* a supervisor software interrupt is due */
	bool sstc;			/* the supervisor's timer is stimecmp */
	u64 msip, mtimecmp;		/* addresses of its CLINT registers */
	u64 start_addr;			/* not 0: leave park() for there */
	u64 opaque;
	/*
	 * One request of its own, which only this hart writes while no target
	 * has yet to serve it (pending), and who has a request for it: a bit
	 * per requester.  No queue, thus nothing to overflow or to lock.
	 */
	struct fence fence;
	u32 pending;
	u64 inbox[MAX_HARTS / 64];
} __attribute__((aligned(64)));

static struct hart harts[MAX_HARTS] = {
	[0 ... MAX_HARTS - 1] = { .state = STOPPED },
};

/* Written by the boot hart before any other hart can be in S-mode. */
static u64 nr_harts;
static u64 ram_end;

#define load(p)		__atomic_load_n(p, __ATOMIC_SEQ_CST)
#define store(p, v)	__atomic_store_n(p, v, __ATOMIC_SEQ_CST)
#define swap(p, v)	__atomic_exchange_n(p, v, __ATOMIC_SEQ_CST)

/* CSRs by number where older assemblers do not know the name. */
#define CSR_STIMECMP	0x14d
#define CSR_MENVCFG	0x30a
#define CSR_MSTATEEN0	0x30c

#define STR_(x)		#x
#define STR(x)		STR_(x)

#define csr_read(csr) ({						\
	u64 v_;								\
	asm volatile("csrr %0, " STR(csr) : "=r"(v_) :: "memory"); v_; })
#define csr_swap(csr, val) ({						\
	u64 v_;								\
	asm volatile("csrrw %0, " STR(csr) ", %1"			\
		     : "=r"(v_) : "r"((u64)(val)) : "memory"); v_; })
#define csr_op(op, csr, val)						\
	asm volatile(op " " STR(csr) ", %0" :: "r"((u64)(val)) : "memory")
#define csr_write(csr, val)	csr_op("csrw", csr, val)
#define csr_set(csr, val)	csr_op("csrs", csr, val)
#define csr_clear(csr, val)	csr_op("csrc", csr, val)

/*
 * Set bits of a CSR which may not exist: true if it does.  A trap would simply
 * arrive behind the instruction; it costs mepc, mcause and mstatus.MPP, so this
 * is only for hart_init(), which enter_supervisor() follows.
 */
#define csr_try_set(csr, val) ({					\
	u64 ok_ = 0, tvec_;						\
	asm volatile("lla %1, 1f\n\tcsrrw %1, mtvec, %1\n\t"		\
		     "csrs " STR(csr) ", %2\n\tli %0, 1\n\t"		\
		     ".balign 4\n1:\tcsrw mtvec, %1"			\
		     : "+&r"(ok_), "=&r"(tvec_)				\
		     : "r"((u64)(val)) : "memory"); ok_; })

static inline void barrier(void)
{
	asm volatile("fence iorw, iorw" ::: "memory");
}

static inline void wfi(void)
{
	asm volatile("wfi" ::: "memory");
}

static inline struct hart *self(void)
{
	return &harts[csr_read(mhartid)];
}

static inline u64 id_of(const struct hart *h)
{
	return h - harts;
}

#define mmio(type, addr)	(*(volatile type *)(u64)(addr))

/* --- console and power: the NS16550 UART and the SiFive test finisher --- */

#define UART_LSR_DR	0x01	/* a byte has arrived */
#define UART_LSR_THRE	0x20	/* a byte can be sent */

static void put_byte(u8 c)
{
	while (!(mmio(u8, UART + 5) & UART_LSR_THRE))
		;
	mmio(u8, UART) = c;
}

/* The byte that has arrived, or -1. */
static long get_byte(void)
{
	return mmio(u8, UART + 5) & UART_LSR_DR ? mmio(u8, UART) : -1;
}

/* Two harts that both see an empty transmitter would lose a byte. */
static u32 console_busy;

static void console_lock(void)
{
	while (swap(&console_busy, 1))
		;
}

static void console_unlock(void)
{
	store(&console_busy, 0);
}

static void put_string(const char *s)
{
	while (*s)
		put_byte(*s++);
}

static void put_hex(const char *name, u64 v)
{
	int shift;

	put_string(name);
	for (shift = 60; shift >= 0; shift -= 4)
		put_byte("0123456789abcdef"[v >> shift & 15]);
}

enum { POWER_OFF = 0x5555, POWER_OFF_FAILURE = 1 << 16 | 0x3333, RESET = 0x7777 };

static void __attribute__((noreturn)) finish(u32 how)
{
	mmio(u32, FINISHER) = how;
	for (;;)
		wfi();
}

/*
 * Never a silent hang: say what happened and power off with failure.  Without
 * the console lock, which this very hart may hold.
 */
static void __attribute__((noreturn, noinline)) panic(const char *why)
{
	put_string("\r\nfirmware: ");
	put_string(why);
	put_hex("\r\n hart ", csr_read(mhartid));
	put_hex(" mcause ", csr_read(mcause));
	put_hex(" mepc ", csr_read(mepc));
	put_hex(" mtval ", csr_read(mtval));
	put_hex(" mstatus ", csr_read(mstatus));
	put_string("\r\n");
	finish(POWER_OFF_FAILURE);
}

/* May the supervisor use this memory? */
static bool ram_ok(u64 addr, u64 size)
{
	return addr >= (u64)fw_end && addr < ram_end && size <= ram_end - addr;
}

/* May the supervisor start there? */
static bool entry_ok(u64 addr)
{
	return ram_ok(addr, 2) && !(addr & 1);
}

/* --- mailboxes: software interrupts and remote fences --- */

/* Wake a hart for what was stored for it before. */
static void kick(u64 hart)
{
	barrier();
	mmio(u32, harts[hart].msip) = 1;
}

/*
 * One page is flushed by address, anything larger as a whole: QEMU answers any
 * SFENCE.VMA by dropping the hart's entire TLB, a loop would only repeat that.
 * The empty range of the specification (0, 0) means everything; so does, to be
 * safe, any other empty range or one that wraps: a supervisor which ignores the
 * status code must not keep stale translations.
 */
static void fence_local(const struct fence *f)
{
	u64 last = f->start + f->size - 1;
	bool one_page = f->size && last >= f->start && !((f->start ^ last) >> 12);

	if (f->op == FENCE_I)
		asm volatile("fence.i" ::: "memory");
	else if (f->op == SFENCE_VMA && one_page)
		asm volatile("sfence.vma %0" :: "r"(f->start) : "memory");
	else if (f->op == SFENCE_VMA)
		asm volatile("sfence.vma" ::: "memory");
	else if (one_page)
		asm volatile("sfence.vma %0, %1" :: "r"(f->start), "r"(f->asid) : "memory");
	else
		asm volatile("sfence.vma zero, %0" :: "r"(f->asid) : "memory");
}

/* Execute the fences that others have asked of this hart. */
static void serve_fences(struct hart *me)
{
	u64 i, r, bits;

	for (i = 0; i < (nr_harts + 63) / 64; i++) {
		if (!load(&me->inbox[i]))
			continue;
		bits = swap(&me->inbox[i], 0);
		for (r = 64 * i; bits; r++, bits >>= 1) {
			if (!(bits & 1))
				continue;
			fence_local(&harts[r].fence);
			/* The last one to finish wakes the requester. */
			if (!__atomic_sub_fetch(&harts[r].pending, 1, __ATOMIC_SEQ_CST))
				kick(r);
		}
	}
}

/*
 * Do whatever mip asks of M-mode.  Clearing MSIP comes before looking at the
 * mailbox: what arrives after the look raises it again.
 */
static void poll(struct hart *me)
{
	u64 irq = csr_read(mip) & csr_read(mie);

	if (irq & IRQ_MTI) {		/* never with Sstc, see set_timer() */
		csr_clear(mie, IRQ_MTI);
		csr_set(mip, IRQ_STI);
	}
	if (irq & IRQ_MSI) {
		mmio(u32, me->msip) = 0;
		barrier();
		if (swap(&me->ipi, 0))
			csr_set(mip, IRQ_SSI);
		serve_fences(me);
	}
}

/* A hart mask argument: the harts first <= h < end for which targets() holds. */
struct targets {
	u64 first, end, bits;
	bool all;
};

static bool targets(const struct targets *t, u64 h)
{
	return t->all || t->bits >> (h - t->first) & 1;
}

static bool targets_init(struct targets *t, u64 bits, u64 base)
{
	t->all = base == -1UL;
	t->bits = bits;
	t->first = t->all ? 0 : base;
	t->end = nr_harts;
	if (t->first >= nr_harts)
		return 0;
	if (!t->all && nr_harts - base >= 64)
		t->end = base + 64;
	return t->all || nr_harts - base >= 64 || !(bits >> (nr_harts - base));
}

/*
 * Stopped harts are left asleep.  One that stops after this look still serves
 * its mailbox from park(); one that starts after it passes the fences of
 * enter_supervisor() first, behind all that the requester stored before its
 * call.
 */
static bool is_active(u64 h)
{
	return load(&harts[h].state) != STOPPED;
}

static long send_ipi(struct hart *me, const struct targets *t)
{
	u64 h;

	barrier();
	for (h = t->first; h < t->end; h++) {
		if (!targets(t, h))
			continue;
		if (h == id_of(me)) {
			csr_set(mip, IRQ_SSI);
		} else if (is_active(h)) {
			store(&harts[h].ipi, 1);
			kick(h);
		}
	}
	return SBI_SUCCESS;
}

/*
 * Returns when every target has executed the fence.  While it waits, this hart
 * sleeps but for its own mailbox, and serves it.
 */
static long remote_fence(struct hart *me, const struct targets *t, struct fence f)
{
	u64 h, saved;

	me->fence = f;
	store(&me->pending, 1);		/* our own share: not 0 until all are asked */
	for (h = t->first; h < t->end; h++) {
		if (!targets(t, h) || h == id_of(me) || !is_active(h))
			continue;
		__atomic_add_fetch(&me->pending, 1, __ATOMIC_SEQ_CST);
		__atomic_fetch_or(&harts[h].inbox[id_of(me) / 64],
				  1UL << id_of(me) % 64, __ATOMIC_SEQ_CST);
		kick(h);
	}
	if (id_of(me) >= t->first && id_of(me) < t->end && targets(t, id_of(me)))
		fence_local(&f);

	saved = csr_swap(mie, IRQ_MSI);
	__atomic_sub_fetch(&me->pending, 1, __ATOMIC_SEQ_CST);
	while (load(&me->pending)) {
		wfi();
		poll(me);
	}
	csr_write(mie, saved);
	return SBI_SUCCESS;
}

/* --- hart states --- */

#define MENVCFG_STCE	(1UL << 63)
/* STCE PBMTE ADUE, CBZE CBCFE CBIE: whatever of it the hart has, S-mode gets. */
#define MENVCFG_WANTED	(7UL << 61 | 0xf0)

#define MSTATUS_MDT	(1UL << 42)

#define PMP_NAPOT	0x18
#define PMP_RWX		0x07

/* M-mode state of a hart that is about to enter S-mode. */
static void hart_init(struct hart *me)
{
	u64 fw_size = fw_end - fw_start;

	/* With Smdbltrp, a trap from here on would be a fatal double trap. */
	csr_clear(mstatus, MSTATUS_MDT);
	csr_write(mideleg, IRQ_SSI | IRQ_STI | IRQ_SEI);
	csr_write(medeleg, ~(1UL << 9 | 1UL << 11));	/* all but ecall from S and M */
	csr_write(mcounteren, -1);
	csr_write(scounteren, -1);
	/* WARL: what the hart does not implement stays 0. */
	csr_try_set(CSR_MSTATEEN0, -1);
	me->sstc = csr_try_set(CSR_MENVCFG, MENVCFG_WANTED) &&
		   csr_read(CSR_MENVCFG) & MENVCFG_STCE &&
		   csr_try_set(CSR_STIMECMP, -1);

	/* Entry 0 hides the firmware, entry 1 grants the rest. */
	if (csr_try_set(pmpaddr0, 0)) {
		csr_write(pmpaddr0, (u64)fw_start >> 2 | (fw_size / 8 - 1));
		csr_write(pmpaddr1, -1);
		csr_write(pmpcfg0, (PMP_NAPOT | PMP_RWX) << 8 | PMP_NAPOT);
	}
}

/* Give the hart to the supervisor, in the state that the HSM extension names. */
static void __attribute__((noreturn)) enter(struct hart *me, u64 addr, u64 opaque)
{
	hart_init(me);
	csr_write(mie, IRQ_MSI);
	csr_clear(mip, IRQ_SSI | IRQ_STI);
	store(&me->ipi, 0);
	store(&me->state, STARTED);
	enter_supervisor(id_of(me), opaque, addr);
}

/* Sleep until some hart_start() names this hart; called by head.S. */
void __attribute__((noreturn)) park(void)
{
	struct hart *me = self();
	u64 addr;

	do {
		wfi();
		poll(me);
		addr = load(&me->start_addr);
	} while (!addr);
	store(&me->start_addr, 0);
	enter(me, addr, me->opaque);
}

static long hart_start(u64 hart, u64 addr, u64 opaque)
{
	u32 stopped = STOPPED;
	struct hart *h = &harts[hart];

	if (hart >= nr_harts)
		return SBI_ERR_INVALID_PARAM;
	if (!entry_ok(addr))
		return SBI_ERR_INVALID_ADDRESS;
	if (!__atomic_compare_exchange_n(&h->state, &stopped, START_PENDING, 0,
					 __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		return SBI_ERR_ALREADY_AVAILABLE;
	/* The hart is ours alone now.  The address releases it: it comes last. */
	h->opaque = opaque;
	store(&h->start_addr, addr);
	kick(hart);
	return SBI_SUCCESS;
}

static void __attribute__((noreturn)) hart_stop(struct hart *me)
{
	csr_write(mie, IRQ_MSI);
	store(&me->state, STOPPED);
	repark();
}

#define SUSPEND_RETENTIVE	0x00000000
#define SUSPEND_NON_RETENTIVE	0x80000000

static long hart_suspend(struct hart *me, u32 type, u64 addr, u64 opaque)
{
	if (type != SUSPEND_RETENTIVE && type != SUSPEND_NON_RETENTIVE)
		return SBI_ERR_INVALID_PARAM;
	if (type == SUSPEND_NON_RETENTIVE && !entry_ok(addr))
		return SBI_ERR_INVALID_ADDRESS;
	store(&me->state, SUSPENDED);
	/* Whatever the supervisor has enabled in sie wakes it, as with WFI. */
	while (!(csr_read(mip) & csr_read(mie) & (IRQ_SSI | IRQ_STI | IRQ_SEI))) {
		wfi();
		poll(me);
	}
	if (type == SUSPEND_NON_RETENTIVE)
		enter(me, addr, opaque);
	store(&me->state, STARTED);
	return SBI_SUCCESS;
}

/* --- the remaining extensions, and the dispatch --- */

static void set_timer(struct hart *me, u64 when)
{
	if (me->sstc) {
		csr_write(CSR_STIMECMP, when);
		return;
	}
	/* The CLINT interrupts M-mode, poll() passes it on once. */
	mmio(u64, me->mtimecmp) = when;
	csr_clear(mip, IRQ_STI);
	csr_set(mie, IRQ_MTI);
}

static long system_reset(u32 type, u32 reason)
{
	if (type > 2 || reason > 1)
		return SBI_ERR_INVALID_PARAM;
	if (type)
		finish(RESET);	/* virt knows one kind of reboot */
	finish(reason ? POWER_OFF_FAILURE : POWER_OFF);
}

static bool has_extension(u64 ext)
{
	switch (ext) {
	case EXT_PUTCHAR: case EXT_GETCHAR: case EXT_BASE: case EXT_TIME: case EXT_IPI:
	case EXT_RFENCE: case EXT_HSM: case EXT_SRST: case EXT_DBCN:
		return 1;
	}
	return 0;
}

#define SUCCESS(v)	((struct ret){ SBI_SUCCESS, (v) })
#define STATUS(e)	((struct ret){ (e), 0 })

static struct ret call_base(u64 fid, u64 arg)
{
	switch (fid) {
	case 0: return SUCCESS(SBI_SPEC_VERSION);
	case 1: return SUCCESS(SBI_IMPL_ID);
	case 2: return SUCCESS(SBI_IMPL_VERSION);
	case 3: return SUCCESS(has_extension(arg));
	case 4: return SUCCESS(csr_read(mvendorid));
	case 5: return SUCCESS(csr_read(marchid));
	case 6: return SUCCESS(csr_read(mimpid));
	}
	return STATUS(SBI_ERR_NOT_SUPPORTED);
}

static struct ret call_hsm(struct hart *me, u64 fid, const u64 *a)
{
	switch (fid) {
	case 0: return STATUS(hart_start(a[0], a[1], a[2]));
	case 1: hart_stop(me);
	case 2: return a[0] < nr_harts ? SUCCESS(load(&harts[a[0]].state))
				       : STATUS(SBI_ERR_INVALID_PARAM);
	case 3: return STATUS(hart_suspend(me, a[0], a[1], a[2]));
	}
	return STATUS(SBI_ERR_NOT_SUPPORTED);
}

static struct ret call_console(u64 fid, const u64 *a)
{
	u8 *p = (u8 *)a[1];
	u64 n = 0;
	long c;

	if (fid > 2)
		return STATUS(SBI_ERR_NOT_SUPPORTED);
	if (fid < 2 && (a[2] || !ram_ok(a[1], a[0])))
		return STATUS(SBI_ERR_INVALID_PARAM);
	console_lock();
	if (fid == 0)
		for (; n < a[0]; n++)
			put_byte(p[n]);
	else if (fid == 1)
		for (; n < a[0] && (c = get_byte()) >= 0; n++)
			p[n] = c;
	else
		put_byte(a[0]);
	console_unlock();
	return SUCCESS(n);
}

/* The calls that name harts by a mask: IPI and RFENCE. */
static struct ret call_harts(struct hart *me, u64 ext, u64 fid, const u64 *a)
{
	struct targets t;

	/* No hfence (3 to 6): this machine's guest runs no guests of its own. */
	if (fid > (ext == EXT_IPI ? 0 : SFENCE_VMA_ASID))
		return STATUS(SBI_ERR_NOT_SUPPORTED);
	if (!targets_init(&t, a[0], a[1]))
		return STATUS(SBI_ERR_INVALID_PARAM);
	if (ext == EXT_IPI)
		return STATUS(send_ipi(me, &t));
	return STATUS(remote_fence(me, &t, (struct fence){ fid, a[2], a[3], a[4] }));
}

static struct ret call(struct hart *me, u64 ext, u64 fid, const u64 *a)
{
	switch (ext) {
	case EXT_BASE:
		return call_base(fid, a[0]);
	case EXT_IPI:
	case EXT_RFENCE:
		return call_harts(me, ext, fid, a);
	case EXT_HSM:
		return call_hsm(me, fid, a);
	case EXT_DBCN:
		return call_console(fid, a);
	case EXT_TIME:
		if (fid)
			break;
		set_timer(me, a[0]);
		return STATUS(SBI_SUCCESS);
	case EXT_SRST:
		if (fid)
			break;
		return STATUS(system_reset(a[0], a[1]));
	}
	return STATUS(SBI_ERR_NOT_SUPPORTED);
}

/* The legacy calls return one value and preserve a1. */
static long call_legacy(u64 ext, u8 byte)
{
	long c = 0;

	console_lock();
	if (ext == EXT_PUTCHAR)
		put_byte(byte);
	else
		c = get_byte();
	console_unlock();
	return c;
}

#define CAUSE_MSI	(1UL << 63 | 3)
#define CAUSE_MTI	(1UL << 63 | 7)
#define CAUSE_ECALL_S	9
#define MSTATUS_MPP	(3UL << 11)

/* Every trap into M-mode; called by head.S. */
void trap(struct frame *f)
{
	struct hart *me = self();
	u64 cause = csr_read(mcause), ext = f->a[7];

	if ((csr_read(mstatus) & MSTATUS_MPP) == MSTATUS_MPP)
		panic("trap in the firmware");
	if (cause == CAUSE_MSI || cause == CAUSE_MTI) {
		poll(me);
		return;
	}
	if (cause != CAUSE_ECALL_S)
		panic("unexpected trap");
	csr_write(mepc, csr_read(mepc) + 4);
	if (ext == EXT_PUTCHAR || ext == EXT_GETCHAR)
		f->a[0] = call_legacy(ext, f->a[0]);
	else
		f->ret = call(me, ext, f->a[6], f->a);
}

/* --- device tree: harts, their CLINTs, the end of RAM; hide the firmware --- */

enum { FDT_BEGIN_NODE = 1, FDT_END_NODE, FDT_PROP, FDT_NOP, FDT_END = 9 };

/* Byte offsets in the header. */
enum {
	FDT_MAGIC = 0, FDT_SIZE = 4, FDT_STRUCT = 8, FDT_STRINGS = 12,
	FDT_SIZE_STRINGS = 32, FDT_SIZE_STRUCT = 36,
};

static u32 get32(const u8 *p)
{
	return (u32)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
}

static u64 get64(const u8 *p)
{
	return (u64)get32(p) << 32 | get32(p + 4);
}

static u8 *put32(u8 *p, u32 v)
{
	p[0] = v >> 24;
	p[1] = v >> 16;
	p[2] = v >> 8;
	p[3] = v;
	return p + 4;
}

static void add32(u8 *p, u32 v)
{
	put32(p, get32(p) + v);
}

static u64 length(const char *s)
{
	u64 n = 0;

	while (s[n])
		n++;
	return n;
}

/* Does the string begin so?  With end true: is it equal? */
static bool matches(const char *s, const char *prefix, bool end)
{
	while (*prefix)
		if (*s++ != *prefix++)
			return 0;
	return !end || !*s;
}

static const u8 *copy(u8 *to, const void *from, u64 n)
{
	const u8 *p = from;

	while (n--)
		*to++ = *p++;
	return to;
}

/* A CLINT, or one of the two devices that it is with aclint=on, or an APLIC. */
struct device {
	const char *node;
	u64 reg[2];			/* addresses */
	const u8 *irqs;			/* interrupts-extended: phandle and number each */
	u32 irqs_len;
	u32 delegate[3];		/* an APLIC's child, and the sources it gets */
	u8 *compatible;
	u32 compatible_len;
};

#define MAX_DEVICES	(6 * MAX_SOCKETS)

/* What the device tree says; too much for the stack. */
static struct machine {
	u64 cpus, ram_size, ram_top;
	bool has_reserved;
	u32 hart;			/* whose node is being read */
	u32 intc[MAX_HARTS];		/* phandle of each hart's interrupt controller */
	u32 devices;
	struct device device[MAX_DEVICES];
} machine;

/* The node at each depth (/cpus/cpu@0/interrupt-controller has depth 4). */
struct path {
	u32 depth;
	const char *name[8];
};

static bool in_cpu(const struct path *at)
{
	return at->depth >= 3 && matches(at->name[2], "cpus", 1) &&
	       matches(at->name[3], "cpu@", 0);
}

static bool is_clint(const char *node)
{
	return matches(node, "clint@", 0) || matches(node, "mswi@", 0) ||
	       matches(node, "mtimer@", 0);
}

/* Since QEMU 9.1 APLICs, and others that are none, are called interrupt-controller. */
static bool is_device(const struct path *at)
{
	return at->depth == 3 &&
	       (is_clint(at->name[3]) || matches(at->name[3], "aplic@", 0) ||
		matches(at->name[3], "interrupt-controller@", 0));
}

static void fdt_node(struct machine *m, const struct path *at)
{
	if (at->depth == 2 && matches(at->name[2], "reserved-memory", 1))
		m->has_reserved = 1;
	if (at->depth == 3 && in_cpu(at))
		m->cpus++;
	if (is_device(at)) {
		if (m->devices == MAX_DEVICES)
			panic("too many interrupt devices");
		m->device[m->devices++].node = at->name[3];
	}
}

static void fdt_device(struct device *d, const char *name, const u8 *value, u32 len)
{
	u32 i;

	if (matches(name, "reg", 1))
		for (i = 0; i < 2 && 16 * i + 16 <= len; i++)
			d->reg[i] = get64(value + 16 * i);
	if (matches(name, "interrupts-extended", 1)) {
		d->irqs = value;
		d->irqs_len = len;
	}
	if (matches(name, "compatible", 1)) {
		d->compatible = (u8 *)value;
		d->compatible_len = len;
	}
	/* The binding says riscv,delegation, QEMU before 9.1 riscv,delegate. */
	if (matches(name, "riscv,delegat", 0) && len == sizeof(d->delegate))
		for (i = 0; i < 3; i++)
			d->delegate[i] = get32(value + 4 * i);
}

/* virt has 2 address and 2 size cells; harts are named by one or two. */
static void fdt_prop(struct machine *m, const struct path *at, const char *name,
		     const u8 *value, u32 len)
{
	if (at->depth == 2 && matches(at->name[2], "memory@", 0) && len == 16 &&
	    matches(name, "reg", 1)) {
		u64 top = get64(value) + get64(value + 8);

		m->ram_size += get64(value + 8);
		m->ram_top = top > m->ram_top ? top : m->ram_top;
	}
	if (at->depth == 3 && in_cpu(at) && matches(name, "reg", 1) && len >= 4) {
		m->hart = get32(value + len - 4);
		if (m->hart >= MAX_HARTS)
			panic("number of harts not supported");
	}
	if (at->depth == 4 && in_cpu(at) && matches(name, "phandle", 1))
		m->intc[m->hart] = get32(value);
	if (is_device(at))
		fdt_device(&m->device[m->devices - 1], name, value, len);
}

static void fdt_scan(const u8 *fdt, struct machine *m)
{
	const char *strings = (const char *)fdt + get32(fdt + FDT_STRINGS);
	const u8 *p = fdt + get32(fdt + FDT_STRUCT);
	struct path at;
	u32 token, len;

	at.depth = 0;
	while ((token = get32(p)) != FDT_END) {
		p += 4;
		if (token == FDT_BEGIN_NODE) {
			if (++at.depth == sizeof(at.name) / sizeof(at.name[0]))
				panic("malformed device tree");
			at.name[at.depth] = (const char *)p;
			fdt_node(m, &at);
			p += (length((const char *)p) + 4) & ~3UL;
		} else if (token == FDT_PROP) {
			len = get32(p);
			fdt_prop(m, &at, strings + get32(p + 4), p + 8, len);
			p += 8 + ((len + 3) & ~3U);
		} else if (token == FDT_END_NODE) {
			at.depth--;
		} else if (token != FDT_NOP) {
			panic("malformed device tree");
		}
	}
}

/* The search begins near the hart of the last one: most often that is it, or the next. */
static u32 hart_of(const struct machine *m, u32 phandle, u32 near)
{
	u32 i, h;

	for (i = 0; i < MAX_HARTS; i++) {
		h = (near + i) % MAX_HARTS;
		if (m->intc[h] == phandle)
			return h;
	}
	panic("an interrupt of no hart");
}

/*
 * A CLINT has one register of each kind per hart that its interrupts go to; the
 * first is that of the hart with the lowest number.
 */
static void clint_init(const struct machine *m, const struct device *d)
{
	bool swi = !matches(d->node, "mtimer@", 0), timer = !matches(d->node, "mswi@", 0);
	u64 mtimecmp = swi ? d->reg[0] + 0x4000 : d->reg[1];
	u32 i, h = 0, first = MAX_HARTS;

	for (i = 0; i < d->irqs_len; i += 8) {
		h = hart_of(m, get32(d->irqs + i), h);
		first = h < first ? h : first;
	}
	for (i = 0; i < d->irqs_len; i += 8) {
		h = hart_of(m, get32(d->irqs + i), h);
		if (swi)
			harts[h].msip = d->reg[0] + 4 * (h - first);
		if (timer)
			harts[h].mtimecmp = mtimecmp + 8 * (h - first);
	}
}

#define APLIC_DELEGATE	(1 << 10)	/* to child 0; in sourcecfg, a word per source */

/*
 * With aia=aplic M-mode has to give the supervisor the devices' interrupts, and
 * to keep it from what gives them: a node that is compatible with nothing has no
 * driver.
 */
static void aplic_init(const struct device *d)
{
	u8 *end = d->compatible + ((d->compatible_len + 3) & ~3U), *p;
	u64 source;

	if (!d->delegate[1] || !d->compatible)
		return;
	for (source = d->delegate[1]; source <= d->delegate[2]; source++)
		mmio(u32, d->reg[0] + 4 * source) = APLIC_DELEGATE;
	for (p = d->compatible - 12; p < end; p += 4)
		put32(p, FDT_NOP);
}

static void devices_init(const struct machine *m)
{
	u32 i, h;

	for (i = 0; i < m->devices; i++) {
		if (is_clint(m->device[i].node))
			clint_init(m, &m->device[i]);
		else
			aplic_init(&m->device[i]);
	}
	for (h = 0; h < m->cpus; h++)
		if (!harts[h].msip || !harts[h].mtimecmp)
			panic("a hart without a CLINT");
}

/* Property names of the node below, and where in this block each begins. */
static const char names[] = "#address-cells\0#size-cells\0ranges\0reg\0no-map";
enum { N_ADDRESS = 0, N_SIZE = 15, N_RANGES = 27, N_REG = 34, N_NO_MAP = 38 };

static u8 *put_node(u8 *p, const char *name, u32 padded_len)
{
	p = put32(p, FDT_BEGIN_NODE);
	copy(p, name, padded_len);
	return p + padded_len;
}

static u8 *put_prop(u8 *p, u32 name, u32 len)
{
	p = put32(p, FDT_PROP);
	p = put32(p, len);
	return put32(p, name);
}

/* Write /reserved-memory/firmware@80000000; names begin at the given offset. */
static u8 *put_reservation(u8 *p, u32 at)
{
	p = put_node(p, "reserved-memory", 16);
	p = put32(put_prop(p, at + N_ADDRESS, 4), 2);
	p = put32(put_prop(p, at + N_SIZE, 4), 2);
	p = put_prop(p, at + N_RANGES, 0);
	p = put_node(p, "firmware@80000000\0\0", 20);
	p = put_prop(p, at + N_REG, 16);
	p = put32(put32(p, 0), (u64)fw_start);
	p = put32(put32(p, 0), fw_end - fw_start);
	p = put_prop(p, at + N_NO_MAP, 0);
	p = put32(p, FDT_END_NODE);
	return put32(p, FDT_END_NODE);
}

/*
 * Insert the reservation as the last child of the root, in place: the strings,
 * last in the blob as libfdt leaves it, move up.  QEMU aligns the tree down from
 * the end of RAM to at least 2 MiB, so that there is room behind it.
 */
static void fdt_reserve(u8 *fdt)
{
	static u8 node[256];
	u32 size_strings = get32(fdt + FDT_SIZE_STRINGS);
	u32 grown = put_reservation(node, size_strings) - node;
	u8 *from = fdt + get32(fdt + FDT_STRUCT) + get32(fdt + FDT_SIZE_STRUCT) - 8;
	u8 *end = fdt + get32(fdt + FDT_STRINGS) + size_strings;
	u8 *p;

	if (get32(from) != FDT_END_NODE || from + 8 > end - size_strings ||
	    end > fdt + get32(fdt + FDT_SIZE))
		panic("unusual device tree layout");
	if ((u64)fdt + get32(fdt + FDT_SIZE) + grown + sizeof(names) > ram_end)
		panic("no room behind the device tree");
	for (p = end; p-- > from; )
		p[grown] = *p;
	copy(from, node, grown);
	copy(end + grown, names, sizeof(names));
	add32(fdt + FDT_SIZE, grown + sizeof(names));
	add32(fdt + FDT_STRINGS, grown);
	add32(fdt + FDT_SIZE_STRUCT, grown);
	add32(fdt + FDT_SIZE_STRINGS, sizeof(names));
}

/* What QEMU's reset vector passes in a2. */
struct fw_dynamic {
	u64 magic, version, next_addr, next_mode;
};

#define FW_DYNAMIC_MAGIC	0x4942534f
#define MODE_S			1

/* The boot hart; called by head.S. */
void __attribute__((noreturn)) boot(u64 hartid, u8 *fdt, const struct fw_dynamic *info)
{
	struct machine *m = &machine;

	if (!fdt || get32(fdt + FDT_MAGIC) != 0xd00dfeed)
		panic("no device tree");
	fdt_scan(fdt, m);
	if (!m->cpus || m->cpus > MAX_HARTS)
		panic("number of harts not supported");
	/* Nodes share one range of RAM; a hole in it would pass for RAM. */
	if (!m->ram_size || m->ram_top - m->ram_size != (u64)fw_start || m->has_reserved)
		panic("device tree is not QEMU virt's");
	devices_init(m);
	nr_harts = m->cpus;
	ram_end = m->ram_top;
	fdt_reserve(fdt);

	if (info->magic != FW_DYNAMIC_MAGIC || info->next_mode != MODE_S ||
	    !entry_ok(info->next_addr))
		panic("no kernel");
	enter(&harts[hartid], info->next_addr, (u64)fdt);
}

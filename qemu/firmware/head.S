/*
 * Entry from QEMU's reset vector, trap entry, and the way into S-mode.
 *
 * mscratch always holds the top of the hart's own stack.  Nothing lives on the
 * stack while the hart is in S-mode, so every trap starts at the top.
 */
#include "platform.h"

	.section .text.start, "ax"
	.globl	_start
_start:					/* a1 = device tree, a2 = fw_dynamic info */
	csrr	a0, mhartid
	li	t0, MAX_HARTS
	bgeu	a0, t0, lost
	lla	sp, stacks
	addi	t0, a0, 1
	slli	t0, t0, STACK_SHIFT
	add	sp, sp, t0
	csrw	mscratch, sp
	lla	t0, trap_entry
	csrw	mtvec, t0
	li	t0, IRQ_MSI		/* the one thing a parked hart wakes up for */
	csrw	mie, t0
	/*
	 * Hart 0 boots, always: the kernel numbers its CPUs from the boot hart
	 * on, and an election would number them differently on every run.
	 */
	bnez	a0, repark
	call	boot

/* void repark(void): wait to be started, with an empty stack */
	.globl	repark
repark:
	csrr	sp, mscratch
	call	park

lost:					/* more harts than we have stacks for */
	wfi
	j	lost

/* void enter_supervisor(u64 hartid, u64 opaque, u64 addr) */
#define MSTATUS_MPP_S	(1 << 11)
/* SIE MIE MPIE MPP MPRV TVM TW TSR; MPV and GVA */
#define MSTATUS_CLEAR	(0x2 | 0x8 | 0x80 | (3 << 11) | (1 << 17) | (7 << 20) | (3 << 38))
	.globl	enter_supervisor
enter_supervisor:
	csrw	mepc, a2
	li	t0, MSTATUS_CLEAR
	csrc	mstatus, t0
	li	t0, MSTATUS_MPP_S
	csrs	mstatus, t0
	csrw	satp, zero
	csrr	sp, mscratch
	/* Fences sent while this hart was stopped were skipped: make up for them. */
	sfence.vma
	fence.i
	mret

/*
 * C preserves s0-s11, gp and tp by itself (no __global_pointer$ is defined, so
 * it never uses gp): only the registers it may clobber are saved.
 */
	.macro	each_saved op
	\op	ra,  0 * 8(sp)
	\op	t1,  3 * 8(sp)
	\op	t2,  4 * 8(sp)
	\op	t3,  5 * 8(sp)
	\op	t4,  6 * 8(sp)
	\op	t5,  7 * 8(sp)
	\op	t6,  8 * 8(sp)
	\op	a0,  9 * 8(sp)
	\op	a1, 10 * 8(sp)
	\op	a2, 11 * 8(sp)
	\op	a3, 12 * 8(sp)
	\op	a4, 13 * 8(sp)
	\op	a5, 14 * 8(sp)
	\op	a6, 15 * 8(sp)
	\op	a7, 16 * 8(sp)
	.endm
#define FRAME	(18 * 8)		/* struct frame, 16 byte aligned */

	.balign	4
trap_entry:
	csrrw	sp, mscratch, sp
	addi	sp, sp, -FRAME
	sd	t0, 2 * 8(sp)
	/* Rearm mscratch at once: a trap from here on must find a stack to report on. */
	addi	t0, sp, FRAME
	csrrw	t0, mscratch, t0
	sd	t0, 1 * 8(sp)		/* the supervisor's sp */
	each_saved sd
	mv	a0, sp
	call	trap
	each_saved ld
	ld	t0, 2 * 8(sp)
	ld	sp, 1 * 8(sp)
	mret

	.section .stacks, "aw", @nobits
	.balign	16
stacks:
	.space	MAX_HARTS * STACK_SIZE

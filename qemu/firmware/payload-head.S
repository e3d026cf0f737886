/* Entries of the test payload: the boot hart's, and the one for hart_start. */
#include "platform.h"

	.macro	own_stack		/* 4 KiB each; tp = hartid */
	lla	sp, stacks
	addi	t0, a0, 1
	slli	t0, t0, 12
	add	sp, sp, t0
	mv	tp, a0
	lla	t0, unexpected
	csrw	stvec, t0
	.endm

	.section .text.start, "ax"
	.globl	_start
_start:
	own_stack
	call	test_main

	.globl	secondary_entry
secondary_entry:
	csrr	a2, satp
	csrr	a3, sstatus
	own_stack
	call	secondary

	.bss
	.balign	4096
stacks:
	.space	MAX_HARTS * 4096

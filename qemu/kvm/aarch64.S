/* SPDX-License-Identifier: GPL-2.0-only */
/* A guest that powers off at once: PSCI's SYSTEM_OFF (Arm DEN 0022). */
	.globl	_start
_start:
	movz	w0, #0x0008
	movk	w0, #0x8400, lsl #16
	hvc	#0
1:	wfi
	b	1b

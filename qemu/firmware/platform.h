/*
 * The machine this firmware is for, QEMU's riscv64 "virt", and the firmware's
 * own dimensions.  Shared by C and assembly: plain macros only.
 */
#ifndef PLATFORM_H
#define PLATFORM_H

/* QEMU's own bound for virt.  Each hart costs one stack and one struct hart. */
#define MAX_HARTS	512

/* A power of two.  The deepest path takes less than half of it. */
#define STACK_SHIFT	10
#define STACK_SIZE	(1 << STACK_SHIFT)

/* QEMU's own bound, too: a NUMA node is a socket, with interrupt devices of its own. */
#define MAX_SOCKETS	4

/* virt's memory map, as far as the device tree is not asked. */
#define FINISHER	0x00100000	/* SiFive test device: power off, reset */
#define UART		0x10000000	/* NS16550A, one byte per register */

/* Interrupt bits of mip, mie and mideleg. */
#define IRQ_SSI		(1 << 1)
#define IRQ_MSI		(1 << 3)
#define IRQ_STI		(1 << 5)
#define IRQ_MTI		(1 << 7)
#define IRQ_SEI		(1 << 9)

#endif

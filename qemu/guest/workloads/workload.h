/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the workloads share. Each is one static C program: it prints its values
 * on lines of their own and exits with 0, or says on stderr what is wrong and
 * exits with 1 (2: wrong usage). It never prints a value it did not measure.
 */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SECOND	INT64_C(1000000000)

static inline void __attribute__((noreturn, format(printf, 2, 3)))
die(int status, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fflush(stdout);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	exit(status);
}

static inline int64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * SECOND + ts.tv_nsec;
}

/* A decimal number of min..max and nothing else, or the usage error `what`. */
static inline unsigned long number(const char *text, unsigned long min, unsigned long max,
				   const char *what)
{
	unsigned long value;

	if (!text || !*text || strlen(text) > 18 || text[strspn(text, "0123456789")])
		die(2, "%s: a number is wanted, not '%s'", what, text ? text : "nothing");
	value = strtoul(text, NULL, 10);
	if (value < min || value > max)
		die(2, "%s: %lu is not in %lu..%lu", what, value, min, max);
	return value;
}

/* First line of a small file of /proc or /sys without its newline; false with errno. */
static inline bool read_line(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len;
	int err;

	if (fd < 0)
		return false;
	len = read(fd, buf, size - 1);
	err = errno;
	close(fd);
	errno = err;
	if (len < 0)
		return false;
	buf[len] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	return true;
}

/* Writes a file of /proc or /sys in one go, opened with `flags` too; false with errno. */
static inline bool write_text(const char *path, const char *text, int flags)
{
	size_t len = strlen(text);
	int fd = open(path, O_WRONLY | O_CLOEXEC | flags);
	bool ok;
	int err;

	if (fd < 0)
		return false;
	errno = EIO;
	ok = !len || write(fd, text, len) == (ssize_t)len;
	err = errno;
	close(fd);
	errno = err;
	return ok;
}

#endif

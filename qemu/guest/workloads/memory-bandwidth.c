// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory bandwidth of four vector kernels over arrays of doubles:
 *
 *   copy   c[i] = a[i]			scale  b[i] = q * c[i]
 *   add    c[i] = a[i] + b[i]		triad  a[i] = b[i] + q * c[i]
 *
 * They are the ones that McCalpin's STREAM defines; the program is ours, and
 * its figures are not to be called STREAM results.
 *
 *   memory-bandwidth [--size BYTES] [--times N] [--threads N]
 *
 *   --size     of each of the three arrays, with K, M or G behind it; 32M by
 *              default. Well beyond the caches, or it is their bandwidth.
 *   --times    runs of each kernel, 10 by default; the first is not counted
 *   --threads  each works on its own part of the arrays; 1 by default
 *
 * Prints for each kernel the bytes read and written in its fastest run, by the
 * time, in MB/s (10^6 bytes): `copy: RATE MB/s`. All elements are compared
 * with what they must be at the end; where one is not, this fails.
 */
#include <pthread.h>

#include "workload.h"

#define KERNELS		4
#define MAX_THREADS	4096
/* q * (2 + q) is 1 but for rounding: values stay near 1, however often. */
#define Q		0.41421356237309503
#define TOLERANCE	1e-8

static const struct { const char *name; int arrays; } kernels[KERNELS] = {
	{ "copy", 2 }, { "scale", 2 }, { "add", 3 }, { "triad", 3 },
};

static double *a, *b, *c;
static size_t length;			/* of each array, in elements */
static unsigned long times = 10, threads = 1;
static int64_t best[KERNELS];		/* in ns; 0: none yet */
static pthread_barrier_t barrier;

static void run_kernel(int kernel, size_t from, size_t to)
{
	double *restrict x = a, *restrict y = b, *restrict z = c;

	switch (kernel) {
	case 0:
		for (size_t i = from; i < to; i++)
			z[i] = x[i];
		break;
	case 1:
		for (size_t i = from; i < to; i++)
			y[i] = Q * z[i];
		break;
	case 2:
		for (size_t i = from; i < to; i++)
			z[i] = x[i] + y[i];
		break;
	case 3:
		for (size_t i = from; i < to; i++)
			x[i] = y[i] + Q * z[i];
		break;
	}
}

/* Thread `arg` of all. The first one keeps the time from barrier to barrier. */
static void *work(void *arg)
{
	size_t thread = (size_t)arg;
	size_t from = length / threads * thread;
	size_t to = thread + 1 == threads ? length : from + length / threads;

	for (size_t i = from; i < to; i++) {	/* its pages come to its node */
		a[i] = 1;
		b[i] = 2;
		c[i] = 0;
	}
	for (unsigned long n = 0; n < times; n++) {
		for (int kernel = 0; kernel < KERNELS; kernel++) {
			int64_t start, time;

			pthread_barrier_wait(&barrier);
			start = now();
			run_kernel(kernel, from, to);
			pthread_barrier_wait(&barrier);
			time = now() - start;
			if (thread == 0 && n > 0 && (!best[kernel] || time < best[kernel]))
				best[kernel] = time;
		}
	}
	return NULL;
}

static void run_threads(void)
{
	static pthread_t ids[MAX_THREADS];
	int err = pthread_barrier_init(&barrier, NULL, threads);

	for (size_t i = 1; i < threads && !err; i++)
		err = pthread_create(&ids[i], NULL, work, (void *)i);
	if (err)
		die(1, "threads: %s", strerror(err));
	work((void *)0);
	for (size_t i = 1; i < threads; i++)
		pthread_join(ids[i], NULL);
}

static bool is_close(double value, double wanted)
{
	double off = value - wanted;

	return off <= TOLERANCE * wanted && off >= -TOLERANCE * wanted;
}

/* Does the same with one element and compares all with it. */
static void verify(void)
{
	double x = 1, y = 2, z = 0;

	for (unsigned long n = 0; n < times; n++) {
		z = x;
		y = Q * z;
		z = x + y;
		x = y + Q * z;
	}
	for (size_t i = 0; i < length; i++) {
		if (!is_close(a[i], x) || !is_close(b[i], y) || !is_close(c[i], z))
			die(1, "element %zu is wrong: %.12g %.12g %.12g, not %.12g %.12g %.12g",
			    i, a[i], b[i], c[i], x, y, z);
	}
}

static size_t parse_size(const char *text)
{
	static const char units[] = "KMG";
	char digits[32];
	size_t len = text ? strlen(text) : 0;
	const char *unit = len ? strchr(units, text[len - 1]) : NULL;
	int shift = unit ? 10 * (unit - units + 1) : 0;

	snprintf(digits, sizeof(digits), "%.*s", (int)(len - !!unit), text ? text : "");
	return (size_t)number(digits, 1, (SIZE_MAX >> 2) >> shift, "--size") << shift;
}

static double *array(void)
{
	double *array = calloc(length, sizeof(double));

	if (!array)
		die(1, "no memory for an array of %zu bytes", length * sizeof(double));
	return array;
}

int main(int argc, char **argv)
{
	size_t size = 32 << 20;

	for (int i = 1; i < argc; i += 2) {
		const char *value = i + 1 < argc ? argv[i + 1] : NULL;

		if (!strcmp(argv[i], "--size"))
			size = parse_size(value);
		else if (!strcmp(argv[i], "--times"))
			times = number(value, 2, 1000000, "--times");
		else if (!strcmp(argv[i], "--threads"))
			threads = number(value, 1, MAX_THREADS, "--threads");
		else
			die(2, "usage: memory-bandwidth [--size BYTES] [--times N] [--threads N]");
	}
	length = size / sizeof(double);
	if (length < threads)
		die(2, "--size: %zu bytes are too few for %lu threads", size, threads);
	a = array();
	b = array();
	c = array();
	run_threads();
	verify();
	for (int kernel = 0; kernel < KERNELS; kernel++) {
		double bytes = (double)kernels[kernel].arrays * sizeof(double) * length;

		if (!best[kernel])
			die(1, "%s: over before the clock ticked; take a larger --size", kernels[kernel].name);
		printf("%s: %.1f MB/s\n", kernels[kernel].name, bytes * 1e3 / best[kernel]);
	}
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * Times CPU hotplug: takes CPUs offline one by one, the highest number first,
 * then brings them online again in the opposite order.
 *
 *   cpu-hotplug [--offline N|all] [--repeat N] [--root DIR]
 *
 *   --offline  so many CPUs, 1 by default; `all` leaves one online
 *   --repeat   does it so often, once by default
 *   --root     has sys/ below DIR, for tests
 *
 * A CPU's time is that of the write to its `online` file, which returns when
 * the kernel is done. Prints
 *
 *   offline: N times, total SECONDS s, mean SECONDS s
 *   online: N times, total SECONDS s, mean SECONDS s
 *
 * If a CPU does not go offline or come online, this fails; so it does where
 * there are too few CPUs. All CPUs are brought online again in any case.
 */
#include <dirent.h>

#include "workload.h"

#define MAX_CPUS	65536

static const char *root = "";
static unsigned int cpus[MAX_CPUS];	/* online ones with a switch, ascending */
static size_t count;

static const char *online_file(unsigned int cpu)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/sys/devices/system/cpu/cpu%u/online", root, cpu);
	return path;
}

static bool is(unsigned int cpu, const char *state)
{
	char text[16];

	return read_line(online_file(cpu), text, sizeof(text)) && !strcmp(text, state);
}

static int ascending(const void *a, const void *b)
{
	unsigned int x = *(const unsigned int *)a, y = *(const unsigned int *)b;

	return (x > y) - (x < y);
}

/* Finds the CPUs; returns how many more are online that have no switch. */
static size_t find_cpus(void)
{
	char path[PATH_MAX];
	struct dirent *entry;
	size_t fixed = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/sys/devices/system/cpu", root);
	dir = opendir(path);
	if (!dir)
		die(1, "%s: %s", path, strerror(errno));
	while ((entry = readdir(dir))) {
		unsigned int cpu;
		char rest;

		if (sscanf(entry->d_name, "cpu%u%c", &cpu, &rest) != 1)
			continue;
		if (access(online_file(cpu), F_OK))
			fixed++;	/* such as CPU 0 where it must stay */
		else if (is(cpu, "1") && count < MAX_CPUS)
			cpus[count++] = cpu;
	}
	closedir(dir);
	qsort(cpus, count, sizeof(cpus[0]), ascending);
	return fixed;
}

/* Returns how long it took, in ns; -1 where the CPU is not in that state now. */
static int64_t change(unsigned int cpu, const char *state)
{
	int64_t start = now();
	bool done = write_text(online_file(cpu), state, 0);
	int64_t time = now() - start;
	const char *what = *state == '0' ? "offline" : "online";

	if (done && is(cpu, state))
		return time;
	fprintf(stderr, "cpu%u does not go %s: %s\n", cpu, what,
		done ? "its state stays as it is" : strerror(errno));
	return -1;
}

/* Brings everything online again, whatever comes, and fails. */
static void __attribute__((noreturn)) give_up(void)
{
	for (size_t i = 0; i < count; i++) {
		if (!is(cpus[i], "1"))
			change(cpus[i], "1");
	}
	exit(1);
}

static void report(const char *what, int64_t total, unsigned long times)
{
	printf("%s: %lu times, total %.9f s, mean %.9f s\n", what, times,
	       (double)total / SECOND, (double)total / SECOND / times);
}

static void measure(size_t wanted, unsigned long repeat)
{
	int64_t offline = 0, online = 0, time;

	for (unsigned long n = 0; n < repeat; n++) {
		for (size_t i = 0; i < wanted; i++, offline += time) {
			time = change(cpus[count - 1 - i], "0");
			if (time < 0)
				give_up();
		}
		for (size_t i = wanted; i-- > 0; online += time) {
			time = change(cpus[count - 1 - i], "1");
			if (time < 0)
				give_up();
		}
	}
	report("offline", offline, wanted * repeat);
	report("online", online, wanted * repeat);
}

int main(int argc, char **argv)
{
	unsigned long wanted = 1, repeat = 1;
	bool all = false;
	size_t usable;

	for (int i = 1; i < argc; i += 2) {
		const char *value = i + 1 < argc ? argv[i + 1] : NULL;

		if (!strcmp(argv[i], "--offline")) {
			all = value && !strcmp(value, "all");
			wanted = all ? 0 : number(value, 1, MAX_CPUS, "--offline");
		} else if (!strcmp(argv[i], "--repeat")) {
			repeat = number(value, 1, 1000000, "--repeat");
		} else if (!strcmp(argv[i], "--root") && value) {
			root = value;
		} else {
			die(2, "usage: cpu-hotplug [--offline N|all] [--repeat N] [--root DIR]");
		}
	}
	usable = find_cpus() ? count : count - !!count;
	if (all)
		wanted = usable;
	if (!wanted || wanted > usable)
		die(1, "%zu CPUs can be taken offline%s", usable,
		    count ? "" : ": does the kernel have HOTPLUG_CPU?");
	measure(wanted, repeat);
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * The guest's init program: runs the benchmarks of /matrix/job one after
 * another, reports on the virtio-serial port `matrix.results` and powers off.
 *
 * Results
 * -------
 * One message a line, `KEY SP PAYLOAD LF`, each line in one write(). The space
 * is there even if the payload is empty. Payloads are printable ASCII: a
 * backslash is `\\`, a newline `\n`, any other byte outside 0x20..0x7e `\xHH`.
 * No line is longer than 4096 bytes: a payload that ends in `\>` goes on in
 * the next line, which has the same key. `?` stands for what can't be read.
 *
 *   matrix-agent 1		first line; the protocol's version
 *   uptime SECONDS		when init started, as in /proc/uptime
 *   release TEXT		uname -r
 *   machine TEXT		uname -m
 *   cmdline TEXT		the kernel's command line
 *   kernel-max N		NR_CPUS - 1
 *   cpus possible=LIST present=LIST online=LIST
 *				e.g. 0-3,8; again after CPUs were brought online
 *   memory KB			MemTotal
 *   notes HEX			/sys/kernel/notes, with the build ID (4 KiB at most)
 *   param NAME=TEXT		MODULE.PARAMETER of the kernel's command line, and
 *				what the module made of it (/sys/module/)
 *   no-param NAME WHY		it did nothing that shows: WHY is module or parameter
 *				(there is none of this name), or an error's text
 *   cpus-online N/M		staged onlining has N CPUs of the M asked for;
 *				every 16 CPUs or 5 s, and at its end
 *   cpu-failed CPU TEXT	this CPU didn't come online, and why
 *   topology packages=N clusters=N cores=N threads=N
 *				once the CPUs are online: packages of the machine,
 *				clusters of each package, cores of each cluster and
 *				threads of each core, of what is online; MIN-MAX
 *				where they differ, ? where the kernel doesn't tell
 *   nodes LIST			NUMA nodes; ? if the kernel knows of none
 *   node N cpus=LIST memory=KB distances=D,D,...
 *				one for each: CPUs online, MemTotal, and how far
 *				the nodes are in the order of LIST
 *   begin BENCH ITERATION	a run starts; BENCH from 0, ITERATION from 1
 *   out LINE			a line of its stdout or stderr
 *   truncated BYTES		there was more output than that; the rest is dropped
 *   heartbeat SECONDS		the run has gone on for so long; every 5 s
 *   end BENCH ITERATION RESULT wall_ns=N
 *				RESULT is exit=CODE, signal=NUMBER, timeout, or
 *				error=TEXT (may have spaces) if it didn't start;
 *				N is from fork() to the program's end
 *   ready NS			all is said and done but for a benchmark that the
 *				kernel runs; CLOCK_MONOTONIC. Then come its `begin`
 *				and heartbeats, until the kernel cuts the power
 *   bye RUNS			last line: everything was run
 *   fatal TEXT			last line instead: the agent gave up
 *
 * Whatever a program leaves behind is killed at the end of its run.
 *
 * Job
 * ---
 * Lines as above, `KEY SP VALUE LF`. Values have the same escapes, without
 * `\>` and `\x00`. No blank lines, no comments; anything unknown is fatal
 * before the first run.
 *
 *   online N|all		bring CPUs online until so many are
 *   bench REPEAT SECONDS	a benchmark: runs, and time limit of each run
 *   arg VALUE			its program, then its arguments
 *   env NAME=VALUE		added to its environment
 *   end			of the benchmark
 *   await-kernel		instead of benchmarks: the kernel runs one by itself
 *				and powers off
 *
 * `agent --dry-run JOB RESULTS` executes a job on any machine: results go to a
 * file, nothing is mounted, no CPU is brought online, no power is cut.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define VERSION		1
#define PORT_NAME	"matrix.results"
#define JOB_FILE	"/matrix/job"
#define CPU_DIR		"/sys/devices/system/cpu/"
#define NODE_DIR	"/sys/devices/system/node/"
#define MODULE_DIR	"/sys/module/"

#define LINE_SIZE	4096		/* of a message, with its newline */
#define FILE_SIZE	4096		/* of what is read from /proc and /sys */
#define JOB_SIZE	(256 * 1024)
#define OUT_LIMIT	(1024 * 1024)	/* output of a run, in bytes */
#define CHUNK_SIZE	(64 * 1024)	/* of reading output */
#define DRAIN_READS	16		/* of CHUNK_SIZE: the largest pipe */

#define MAX_BENCHES	256
#define MAX_ARGS	128
#define MAX_ENV		64
#define MAX_REPEAT	1000000ul
#define MAX_TIMEOUT	1000000ul
#define MAX_CPUS	1000000ul
#define MAX_FILES	65536ul		/* hackbench has thousands of sockets */

#define SECOND		INT64_C(1000000000)
#define HEARTBEAT	(5 * SECOND)
#define TERM_GRACE	(2 * SECOND)	/* from SIGTERM to SIGKILL */
#define KILL_GRACE	(60 * SECOND)	/* for thousands of processes to die */
#define PORT_WAIT	(30 * SECOND)	/* the port's name arrives asynchronously */
#define ONLINE_REPORT	(5 * SECOND)
#define ONLINE_BATCH	16

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#define PRINTF(f, a)	__attribute__((format(printf, f, a)))

struct message {
	const char *key;
	size_t len;
	char line[LINE_SIZE];
};

struct bench {
	unsigned long repeat;
	unsigned long timeout;
	size_t args, envs;
	char *argv[MAX_ARGS + 1];
	char *envp[MAX_ENV + 3];	/* and our own two, and the end */
};

/* Levels of the CPU topology, each within the one before. */
enum { PACKAGE, CLUSTER, CORE, THREAD, LEVELS };

struct place {
	long id[THREAD];		/* unique within the level before only */
};

struct range {
	unsigned long min, max;
};

struct job {
	unsigned long online;		/* 0: leave CPUs alone */
	bool await_kernel;
	bool in_bench;
	size_t benches;
	struct bench bench[MAX_BENCHES];
};

struct run {
	pid_t pid;
	int output;			/* -1 after its end */
	enum { RUNNING, TERMINATED, KILLED } phase;
	bool timed_out;
	bool exited;
	bool childless;
	int status;
	int64_t start, wall;
	int64_t next_signal, next_beat;
	size_t bytes;
	struct message out;
};

static bool is_init;
static int results = -1;
static sigset_t normal_mask;		/* without SIGCHLD, for ppoll() */
static volatile int *exec_errno;	/* shared with the child until it execs */

static void say(const char *key, const char *fmt, ...) PRINTF(2, 3);
static void fatal(const char *fmt, ...) PRINTF(1, 2) __attribute__((noreturn));

static int64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * SECOND + ts.tv_nsec;
}

static struct timespec to_timespec(int64_t ns)
{
	if (ns < 0)
		ns = 0;
	return (struct timespec){ .tv_sec = ns / SECOND, .tv_nsec = ns % SECOND };
}

static void sleep_ns(int64_t ns)
{
	struct timespec ts = to_timespec(ns);

	nanosleep(&ts, NULL);
}

/* Ends the guest, or the dry run. */
static void __attribute__((noreturn)) finish(int status)
{
	if (!is_init)
		exit(status);
	sync();
	/* A port can't be asked whether the host has taken everything. */
	sleep_ns(SECOND / 5);
	reboot(RB_POWER_OFF);
	/* QEMU is told to end rather than to reboot, so this is as good; and so
	 * is the panic when init exits. */
	reboot(RB_AUTOBOOT);
	_exit(status);
}

static void fatal(const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	dprintf(STDERR_FILENO, "matrix-agent: %s\n", text);
	if (results >= 0)
		say("fatal", "%s", text);
	finish(1);
}

static void message_open(struct message *msg, const char *key)
{
	msg->key = key;
	msg->len = snprintf(msg->line, LINE_SIZE, "%s ", key);
}

static bool message_empty(const struct message *msg)
{
	return msg->len == strlen(msg->key) + 1;
}

static void message_send(struct message *msg)
{
	size_t done = 0;

	msg->line[msg->len++] = '\n';
	while (done < msg->len) {
		ssize_t n = write(results, msg->line + done, msg->len - done);

		if (n < 0 && errno != EINTR) {
			results = -1;
			fatal("results channel: %s", strerror(errno));
		}
		if (n > 0)
			done += n;
	}
}

/* Appends a byte, escaped; goes on in a new line if this one is full. */
static void message_add(struct message *msg, unsigned char c)
{
	char text[8];
	size_t len;

	if (c == '\\')
		len = sprintf(text, "\\\\");
	else if (c == '\n')
		len = sprintf(text, "\\n");
	else if (c < 0x20 || c > 0x7e)
		len = sprintf(text, "\\x%02x", c);
	else
		len = sprintf(text, "%c", c);

	if (msg->len + len + strlen("\\>\n") > LINE_SIZE) {
		msg->line[msg->len++] = '\\';
		msg->line[msg->len++] = '>';
		message_send(msg);
		message_open(msg, msg->key);
	}
	memcpy(msg->line + msg->len, text, len);
	msg->len += len;
}

/* Sends a message; its payload is escaped here. */
static void say(const char *key, const char *fmt, ...)
{
	static char text[3 * FILE_SIZE + 64];
	struct message msg;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	message_open(&msg, key);
	for (const char *s = text; *s; s++)
		message_add(&msg, *s);
	message_send(&msg);
}

/* Reads a file of any length up to `size` bytes; -1 with errno on failure. */
static ssize_t read_file(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	ssize_t n = 0;

	if (fd < 0)
		return -1;
	while (len < size && (n = read(fd, buf + len, size - len)) > 0)
		len += n;
	if (n < 0) {
		int err = errno;

		close(fd);
		errno = err;
		return -1;
	}
	close(fd);
	return len;
}

/* Text of a file of /proc or /sys without its last newline, else `?`. */
static const char *read_text(const char *path, char buf[FILE_SIZE])
{
	ssize_t len = read_file(path, buf, FILE_SIZE - 1);

	if (len < 0)
		return strcpy(buf, "?");
	if (len > 0 && buf[len - 1] == '\n')
		len--;
	buf[len] = '\0';
	return buf;
}

static bool write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok;
	int err;

	if (fd < 0)
		return false;
	ok = write(fd, text, strlen(text)) >= 0;
	err = errno;
	close(fd);
	errno = err;
	return ok;
}

static void say_cpus(void)
{
	char possible[FILE_SIZE], present[FILE_SIZE], online[FILE_SIZE];

	say("cpus", "possible=%s present=%s online=%s",
	    read_text(CPU_DIR "possible", possible),
	    read_text(CPU_DIR "present", present),
	    read_text(CPU_DIR "online", online));
}

/* MemTotal in KB, of /proc/meminfo or of a node's, as text. */
static const char *memory_of(const char *path, char text[32])
{
	char buf[FILE_SIZE], *total;
	unsigned long kb;

	read_text(path, buf);
	total = strstr(buf, "MemTotal:");
	if (!total || sscanf(total, "MemTotal: %lu kB", &kb) != 1)
		return strcpy(text, "?");
	snprintf(text, 32, "%lu", kb);
	return text;
}

static void say_notes(void)
{
	static const char digits[] = "0123456789abcdef";
	unsigned char buf[FILE_SIZE];
	ssize_t len = read_file("/sys/kernel/notes", (char *)buf, sizeof(buf));
	struct message msg;

	message_open(&msg, "notes");
	for (ssize_t i = 0; i < len; i++) {
		message_add(&msg, digits[buf[i] >> 4]);
		message_add(&msg, digits[buf[i] & 15]);
	}
	if (len < 0)
		message_add(&msg, '?');
	message_send(&msg);
}

/* What a built-in module made of a parameter. One that it doesn't know, or a
 * module that isn't there, is passed over by the kernel without a word. */
static void say_param(const char *name, size_t len)
{
	char path[FILE_SIZE], value[FILE_SIZE];
	size_t module = strcspn(name, ".");
	ssize_t got;

	if (module >= len || len > 256 || memchr(name, '/', len))
		return;
	snprintf(path, sizeof(path), MODULE_DIR "%.*s/parameters/%.*s", (int)module, name,
		 (int)(len - module - 1), name + module + 1);
	/* To the kernel's command line the two are the same. */
	for (char *c = path + strlen(MODULE_DIR); *c; c++)
		if (*c == '-')
			*c = '_';
	got = read_file(path, value, sizeof(value) - 1);
	if (got >= 0) {
		value[got] = '\0';
		say("param", "%.*s=%.*s", (int)len, name, (int)strcspn(value, "\n"), value);
		return;
	}
	if (errno != ENOENT) {
		say("no-param", "%.*s %s", (int)len, name, strerror(errno));
		return;
	}
	path[strlen(MODULE_DIR) + module] = '\0';
	say("no-param", "%.*s %s", (int)len, name,
	    access(path, F_OK) ? "module" : "parameter");
}

/* Every word with a dot in its name, up to the one that begins init's own. */
static void say_params(const char *cmdline)
{
	bool quoted = false;

	while (*cmdline) {
		const char *word = cmdline;
		size_t name = strcspn(word, "= \n");

		for (; *cmdline && (quoted || !strchr(" \n", *cmdline)); cmdline++)
			quoted ^= *cmdline == '"';
		if (name == 2 && !strncmp(word, "--", 2))
			return;
		say_param(word, name);
		cmdline += *cmdline != '\0';
	}
}

static void say_facts(const char *uptime)
{
	char buf[FILE_SIZE], kb[32];
	struct utsname name;

	say("matrix-agent", "%d", VERSION);
	say("uptime", "%.*s", (int)strcspn(uptime, " "), uptime);
	uname(&name);
	say("release", "%s", name.release);
	say("machine", "%s", name.machine);
	say("cmdline", "%s", read_text("/proc/cmdline", buf));
	say_params(buf);
	say("kernel-max", "%s", read_text(CPU_DIR "kernel_max", buf));
	say_cpus();
	say("memory", "%s", memory_of("/proc/meminfo", kb));
	say_notes();
}

/* A decimal number of 1..max and nothing else. */
static bool parse_number(const char *s, unsigned long max, unsigned long *value)
{
	if (!s || !*s || strlen(s) > 9 || s[strspn(s, "0123456789")])
		return false;
	*value = strtoul(s, NULL, 10);
	return *value >= 1 && *value <= max;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Undoes the escapes in place, which never makes a text longer. */
static bool unescape(char *s)
{
	char *to = s;

	while (*s) {
		if (*s != '\\') {
			*to++ = *s++;
		} else if (s[1] == '\\' || s[1] == 'n') {
			*to++ = s[1] == 'n' ? '\n' : '\\';
			s += 2;
		} else if (s[1] == 'x' && hex_digit(s[2]) >= 0 && hex_digit(s[3]) >= 0) {
			*to = hex_digit(s[2]) << 4 | hex_digit(s[3]);
			if (!*to++)
				return false;
			s += 4;
		} else {
			return false;
		}
	}
	*to = '\0';
	return true;
}

/* A line within a benchmark. The pointers are into the job's text. */
static bool parse_bench_line(struct job *job, const char *key, char *value)
{
	struct bench *bench = &job->bench[job->benches];

	if (!strcmp(key, "end") && !value && bench->args) {
		bench->envp[bench->envs++] = "PATH=/bin:/sbin:/usr/bin:/usr/sbin";
		bench->envp[bench->envs] = "HOME=/tmp";
		job->benches++;
		job->in_bench = false;
		return true;
	}
	if (!value || !unescape(value))
		return false;
	if (!strcmp(key, "arg") && bench->args < MAX_ARGS) {
		bench->argv[bench->args++] = value;
		return true;
	}
	if (!strcmp(key, "env") && bench->envs < MAX_ENV &&
	    *value != '=' && strchr(value, '=')) {
		bench->envp[bench->envs++] = value;
		return true;
	}
	return false;
}

static bool parse_line(struct job *job, char *line)
{
	char *value = line, *key = strsep(&value, " ");

	if (job->in_bench)
		return parse_bench_line(job, key, value);
	if (!strcmp(key, "online") && value && !job->online) {
		job->online = MAX_CPUS;
		return !strcmp(value, "all") ||
		       parse_number(value, MAX_CPUS - 1, &job->online);
	}
	if (!strcmp(key, "await-kernel") && !value && !job->benches) {
		job->await_kernel = true;
		return true;
	}
	if (!strcmp(key, "bench") && value && !job->await_kernel && job->benches < MAX_BENCHES) {
		struct bench *bench = &job->bench[job->benches];

		job->in_bench = true;
		return parse_number(strsep(&value, " "), MAX_REPEAT, &bench->repeat) &&
		       parse_number(value, MAX_TIMEOUT, &bench->timeout);
	}
	return false;
}

static void parse_job(struct job *job, const char *path)
{
	static char text[JOB_SIZE];
	char *rest = text, *line;
	ssize_t len = read_file(path, text, sizeof(text) - 1);

	if (len < 0)
		fatal("job: %s", strerror(errno));
	if (len == sizeof(text) - 1 || (size_t)len != strlen(text))
		fatal("job: too long or not text");
	if (len > 0 && text[len - 1] != '\n')
		fatal("job: cut short");
	for (int i = 1; *rest; i++) {
		line = strsep(&rest, "\n");
		if (!parse_line(job, line))
			fatal("job: line %d is not valid", i);
	}
	if (job->in_bench)
		fatal("job: no end of the last bench");
}

/* Takes a range off the front of a list such as `0-3,8`. */
static bool next_range(const char **list, unsigned long *first, unsigned long *last)
{
	char *end;

	*first = *last = strtoul(*list, &end, 10);
	if (end == *list)
		return false;
	if (*end == '-')
		*last = strtoul(end + 1, &end, 10);
	*list = end + (*end == ',');
	return *last < MAX_CPUS;
}

static unsigned long count_cpus(const char *list)
{
	unsigned long first, last, n = 0;

	while (next_range(&list, &first, &last))
		n += last - first + 1;
	return n;
}

/* Whether the CPU was offline and now is online. */
static bool online_cpu(unsigned long cpu)
{
	char path[64], state[FILE_SIZE];

	snprintf(path, sizeof(path), CPU_DIR "cpu%lu/online", cpu);
	if (strcmp(read_text(path, state), "0"))
		return false;
	if (write_text(path, "1"))
		return true;
	if (results >= 0)	/* else it is tried and told again */
		say("cpu-failed", "%lu %s", cpu, strerror(errno));
	return false;
}

/* One CPU after the other, so that the host sees how far a slow boot has come. */
static void online_cpus(unsigned long wanted)
{
	char present[FILE_SIZE], online[FILE_SIZE];
	const char *list = read_text(CPU_DIR "present", present);
	unsigned long n = count_cpus(read_text(CPU_DIR "online", online));
	unsigned long cpu, last;
	int64_t reported = now();

	if (wanted == MAX_CPUS)
		wanted = count_cpus(present);
	if (n >= wanted)
		return;
	while (n < wanted && next_range(&list, &cpu, &last)) {
		for (; n < wanted && cpu <= last; cpu++) {
			if (!online_cpu(cpu))
				continue;
			n++;
			if (n % ONLINE_BATCH && now() - reported < ONLINE_REPORT)
				continue;
			say("cpus-online", "%lu/%lu", n, wanted);
			reported = now();
		}
	}
	say("cpus-online", "%lu/%lu", n, wanted);
	say_cpus();
}

/* NUMA node of a CPU by the device tree, which even a kernel without NUMA shows. */
static long node_of_cpu(unsigned long cpu)
{
	char path[96], cell[4];

	snprintf(path, sizeof(path), CPU_DIR "cpu%lu/of_node/numa-node-id", cpu);
	if (read_file(path, cell, sizeof(cell)) != sizeof(cell) || cell[0] || cell[1])
		return -1;
	return (unsigned char)cell[2] << 8 | (unsigned char)cell[3];
}

/*
 * With staged onlining, brings one CPU of every NUMA node online: where a node
 * has an interrupt controller of its own, the results channel's device may be
 * on one that none but the node's CPUs can hear.
 */
static void online_nodes(void)
{
	char present[FILE_SIZE], online[FILE_SIZE];
	const char *list = read_text(CPU_DIR "present", present);
	unsigned long cpu, last;
	long seen = -1, node;

	if (!strcmp(list, read_text(CPU_DIR "online", online)))
		return;
	/* Machines number the CPUs of one node after the other. */
	while (next_range(&list, &cpu, &last)) {
		for (; cpu <= last; cpu++) {
			node = node_of_cpu(cpu);
			if (node >= 0 && node != seen && seen >= 0)
				online_cpu(cpu);
			seen = node;
		}
	}
}

/* First level on which two CPUs differ; THREAD if they share a core. */
static int differ(const struct place *a, const struct place *b)
{
	int level = PACKAGE;

	while (level < THREAD && a->id[level] == b->id[level])
		level++;
	return level;
}

static int compare_places(const void *a, const void *b)
{
	const struct place *x = a, *y = b;
	int level = differ(x, y);

	return level == THREAD ? 0 : x->id[level] < y->id[level] ? -1 : 1;
}

/* How many of each level the one before has, at least and at most. */
static void count_levels(struct place *places, size_t n, struct range range[LEVELS])
{
	unsigned long count[LEVELS] = { 1, 1, 1, 1 };

	qsort(places, n, sizeof(*places), compare_places);
	for (size_t i = 1; i <= n; i++) {
		int level = i < n ? differ(&places[i - 1], &places[i]) : -1;

		/* All below the level where they differ is complete. */
		for (int l = level + 1; l < LEVELS; l++) {
			if (!range[l].min || count[l] < range[l].min)
				range[l].min = count[l];
			if (count[l] > range[l].max)
				range[l].max = count[l];
			count[l] = 1;
		}
		if (level >= 0)
			count[level]++;
	}
}

/* Where a CPU is; clears `known` of the levels that the kernel doesn't tell. */
static void find_place(unsigned long cpu, struct place *place, bool known[LEVELS])
{
	static const char *const files[] = { "physical_package_id", "cluster_id", "core_id" };
	char path[96], text[FILE_SIZE], *end;

	for (int level = PACKAGE; level < THREAD; level++) {
		snprintf(path, sizeof(path), CPU_DIR "cpu%lu/topology/%s", cpu, files[level]);
		place->id[level] = strtol(read_text(path, text), &end, 10);
		known[level] &= end != text && !*end;
	}
}

static void say_topology(void)
{
	static const char *const names[] = { "packages", "clusters", "cores", "threads" };
	bool known[LEVELS] = { true, true, true, true };
	char online[FILE_SIZE], text[256] = "";
	const char *list = read_text(CPU_DIR "online", online);
	struct place *places = calloc(count_cpus(list) + 1, sizeof(*places));
	struct range range[LEVELS] = { 0 };
	unsigned long cpu, last;
	size_t n = 0, len = 0;

	while (places && next_range(&list, &cpu, &last))
		for (; cpu <= last; cpu++)
			find_place(cpu, &places[n++], known);
	if (n)
		count_levels(places, n, range);
	/* Without cores, each CPU would pass for a thread of one. */
	known[THREAD] = known[CORE];
	for (int level = PACKAGE; level < LEVELS; level++) {
		len += sprintf(text + len, "%s%s=", level ? " " : "", names[level]);
		if (!n || !known[level])
			len += sprintf(text + len, "?");
		else if (range[level].min == range[level].max)
			len += sprintf(text + len, "%lu", range[level].min);
		else
			len += sprintf(text + len, "%lu-%lu", range[level].min, range[level].max);
	}
	free(places);
	say("topology", "%s", text);
}

static void say_node(unsigned long node)
{
	char path[96], cpus[FILE_SIZE], distances[FILE_SIZE], kb[32];

	snprintf(path, sizeof(path), NODE_DIR "node%lu/cpulist", node);
	read_text(path, cpus);
	snprintf(path, sizeof(path), NODE_DIR "node%lu/distance", node);
	read_text(path, distances);
	for (char *s = distances; *s; s++)
		if (*s == ' ')
			*s = ',';
	snprintf(path, sizeof(path), NODE_DIR "node%lu/meminfo", node);
	say("node", "%lu cpus=%s memory=%s distances=%s", node, cpus, memory_of(path, kb), distances);
}

static void say_nodes(void)
{
	char nodes[FILE_SIZE];
	const char *list = read_text(NODE_DIR "online", nodes);
	unsigned long node, last;

	say("nodes", "%s", list);
	while (next_range(&list, &node, &last))
		for (; node <= last; node++)
			say_node(node);
}

static void raise_file_limit(void)
{
	struct rlimit old, wish;

	if (getrlimit(RLIMIT_NOFILE, &old))
		return;
	wish.rlim_cur = MAX_FILES;
	wish.rlim_max = old.rlim_max > MAX_FILES ? old.rlim_max : MAX_FILES;
	if (!setrlimit(RLIMIT_NOFILE, &wish))
		return;
	old.rlim_cur = old.rlim_max;	/* may not raise the hard limit */
	setrlimit(RLIMIT_NOFILE, &old);
}

static void __attribute__((noreturn)) exec_child(struct bench *bench, int output)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	setsid();
	raise_file_limit();
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, &normal_mask, NULL);
	if (null >= 0 && dup2(null, 0) == 0 && dup2(output, 1) == 1 && dup2(output, 2) == 2) {
		environ = bench->envp;
		execvp(bench->argv[0], bench->argv);
	}
	*exec_errno = errno;
	_exit(127);
}

/* Returns 0 or an error number. */
static int run_start(struct run *run, struct bench *bench)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC))
		return errno;
	fcntl(fds[0], F_SETFL, O_NONBLOCK);
	run->output = fds[0];
	*exec_errno = 0;
	run->start = now();
	run->next_beat = run->start + HEARTBEAT;
	run->next_signal = run->start + (int64_t)bench->timeout * SECOND;
	run->pid = fork();
	if (run->pid == 0)
		exec_child(bench, fds[1]);
	close(fds[1]);
	return run->pid < 0 ? errno : 0;
}

static void run_output(struct run *run, const char *buf, size_t len)
{
	for (; len && run->bytes < OUT_LIMIT; len--, buf++) {
		run->bytes++;
		if (*buf != '\n') {
			message_add(&run->out, *buf);
			continue;
		}
		message_send(&run->out);
		message_open(&run->out, "out");
	}
	if (!len || run->bytes > OUT_LIMIT)
		return;
	run->bytes++;
	if (!message_empty(&run->out))
		message_send(&run->out);
	message_open(&run->out, "out");
	say("truncated", "%d", OUT_LIMIT);
}

/* Whether there may be more to read. */
static bool run_read(struct run *run)
{
	static char buf[CHUNK_SIZE];
	ssize_t len;

	if (run->output < 0)
		return false;
	len = read(run->output, buf, sizeof(buf));
	if (len > 0) {
		run_output(run, buf, len);
		return true;
	}
	if (len < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	close(run->output);
	run->output = -1;
	return false;
}

/* The program and its children; if it's gone, everything but init. */
static void run_kill(struct run *run, int sig)
{
	if (run->exited && is_init)
		kill(-1, sig);
	else if (kill(-run->pid, sig) && !run->exited)
		kill(run->pid, sig);	/* hasn't come to setsid() yet */
}

/* Reaps orphans too, as becomes an init. */
static void run_reap(struct run *run)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid != run->pid || run->exited)
			continue;
		run->wall = now() - run->start;
		run->status = status;
		run->exited = true;
		/* What it left behind would disturb the next run. */
		run_kill(run, SIGKILL);
		run->phase = KILLED;
		run->next_signal = now() + KILL_GRACE;
	}
	run->childless = pid < 0;
}

/* The time of the phase is up. */
static void run_escalate(struct run *run)
{
	switch (run->phase) {
	case RUNNING:
		run->timed_out = true;
		run_kill(run, SIGTERM);
		run->phase = TERMINATED;
		run->next_signal = now() + TERM_GRACE;
		break;
	case TERMINATED:
		run_kill(run, SIGKILL);
		run->phase = KILLED;
		run->next_signal = now() + KILL_GRACE;
		break;
	case KILLED:
		fatal("processes survive SIGKILL");
	}
}

/* Sleeps in ppoll() unless there is something to pass on or to do. */
static void run_supervise(struct run *run)
{
	while (!run->exited || !run->childless) {
		struct pollfd pfd = { .fd = run->output, .events = POLLIN };
		int64_t t = now(), next;
		struct timespec timeout;

		if (t >= run->next_beat) {
			say("heartbeat", "%lld", (long long)((t - run->start) / SECOND));
			run->next_beat = t + HEARTBEAT;
		}
		if (t >= run->next_signal)
			run_escalate(run);
		next = run->next_beat < run->next_signal ? run->next_beat : run->next_signal;
		timeout = to_timespec(next - t);
		if (ppoll(&pfd, 1, &timeout, &normal_mask) > 0)
			run_read(run);
		run_reap(run);
	}
	for (int i = 0; i < DRAIN_READS && run_read(run); i++)
		;
}

static void run_bench(struct bench *bench, size_t index, unsigned long iteration)
{
	static struct run run;
	char result[256];
	int err;

	run = (struct run){ .output = -1 };
	message_open(&run.out, "out");
	say("begin", "%zu %lu", index, iteration);
	err = run_start(&run, bench);
	if (!err) {
		run_supervise(&run);
		err = *exec_errno;
	}
	if (run.output >= 0)
		close(run.output);
	if (!message_empty(&run.out))
		message_send(&run.out);

	if (run.timed_out)
		snprintf(result, sizeof(result), "timeout");
	else if (err)
		snprintf(result, sizeof(result), "error=%s", strerror(err));
	else if (WIFSIGNALED(run.status))
		snprintf(result, sizeof(result), "signal=%d", WTERMSIG(run.status));
	else
		snprintf(result, sizeof(result), "exit=%d", WEXITSTATUS(run.status));
	say("end", "%zu %lu %s wall_ns=%lld", index, iteration, result, (long long)run.wall);
}

/* The kernel measures and cuts the power; we only show that the guest lives. */
static void await_kernel(void)
{
	int64_t start = now();

	say("ready", "%lld", (long long)start);
	say("begin", "0 1");
	while (is_init) {
		sleep_ns(HEARTBEAT);
		say("heartbeat", "%lld", (long long)((now() - start) / SECOND));
	}
}

static unsigned long run_job(struct job *job)
{
	unsigned long runs = 0;

	if (job->online && is_init)
		online_cpus(job->online);
	say_topology();
	say_nodes();
	if (job->await_kernel)
		await_kernel();
	for (size_t i = 0; i < job->benches; i++) {
		for (unsigned long n = 1; n <= job->bench[i].repeat; n++) {
			run_bench(&job->bench[i], i, n);
			runs++;
		}
	}
	return runs;
}

static void mount_all(void)
{
	static const struct { const char *type, *dir; } mounts[] = {
		{ "proc", "/proc" },
		{ "sysfs", "/sys" },
		{ "devtmpfs", "/dev" },
		{ "tmpfs", "/tmp" },
		{ "tmpfs", "/dev/shm" },
	};
	static const struct { const char *target, *path; } links[] = {
		{ "/proc/self/fd", "/dev/fd" },
		{ "/proc/self/fd/0", "/dev/stdin" },
		{ "/proc/self/fd/1", "/dev/stdout" },
		{ "/proc/self/fd/2", "/dev/stderr" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(mounts); i++) {
		const char *type = mounts[i].type, *dir = mounts[i].dir;

		mkdir(dir, 0755);
		if (mount(type, dir, type, MS_NOSUID, NULL) && errno != EBUSY)
			fatal("mount %s: %s", dir, strerror(errno));
	}
	for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
		if (symlink(links[i].target, links[i].path) && errno != EEXIST)
			fatal("%s: %s", links[i].path, strerror(errno));
	}
}

/* The port of our name, or -1 if there is none (yet). */
static int open_port(void)
{
	DIR *dir = opendir("/sys/class/virtio-ports");
	char path[300], name[FILE_SIZE];
	struct dirent *entry;
	int fd = -1;

	if (!dir)
		return -1;
	while (fd < 0 && (entry = readdir(dir))) {
		snprintf(path, sizeof(path), "/sys/class/virtio-ports/%s/name", entry->d_name);
		if (strcmp(read_text(path, name), PORT_NAME))
			continue;
		snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
		fd = open(path, O_WRONLY | O_CLOEXEC);
	}
	closedir(dir);
	return fd;
}

static int wait_for_port(void)
{
	int64_t deadline = now() + PORT_WAIT;
	int fd;

	while ((fd = open_port()) < 0) {
		if (now() >= deadline)
			fatal("no results channel");
		sleep_ns(SECOND / 50);
	}
	return fd;
}

/* Descriptors 0 to 2 are the child's; none of ours may get their numbers. */
static void open_std_fds(void)
{
	int fd;

	do {
		fd = open(is_init ? "/dev/console" : "/dev/null", O_RDWR);
		if (fd < 0)
			fd = open("/dev/null", O_RDWR);
	} while (fd >= 0 && fd <= 2);
	if (fd > 2)
		close(fd);
}

static void on_child(int sig)
{
	(void)sig;	/* only there to end ppoll() */
}

static void setup_process(void)
{
	struct sigaction action = { .sa_handler = on_child };
	struct sched_param priority = { .sched_priority = 1 };
	sigset_t blocked;

	sigemptyset(&normal_mask);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGCHLD);
	sigprocmask(SIG_SETMASK, &blocked, NULL);
	sigaction(SIGCHLD, &action, NULL);

	/* Heartbeats and timeouts are to be on time among thousands of runnable
	 * tasks. It costs the program nothing: we sleep. */
	if (is_init)
		sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &priority);

	exec_errno = mmap(NULL, sizeof(*exec_errno), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (exec_errno == MAP_FAILED)
		fatal("mmap: %s", strerror(errno));
}

int main(int argc, char **argv)
{
	static struct job job;
	char uptime[FILE_SIZE];

	is_init = getpid() == 1;
	if (!is_init && (argc != 4 || strcmp(argv[1], "--dry-run"))) {
		dprintf(STDERR_FILENO, "usage: agent --dry-run JOB RESULTS\n");
		return 2;
	}
	if (is_init)
		mount_all();
	open_std_fds();
	setup_process();
	read_text("/proc/uptime", uptime);
	if (is_init) {
		online_nodes();
		results = wait_for_port();
		if (chdir("/tmp"))
			fatal("/tmp: %s", strerror(errno));
	} else {
		results = open(argv[3], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
		if (results < 0)
			fatal("%s: %s", argv[3], strerror(errno));
	}
	say_facts(uptime);
	parse_job(&job, is_init ? JOB_FILE : argv[2]);
	say("bye", "%lu", run_job(&job));
	finish(0);
}

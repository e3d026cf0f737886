// SPDX-License-Identifier: GPL-2.0-only
/*
 * Times every call of one kernel function with the function tracer.
 *
 *   function-cost [--root DIR] FUNCTION -- COMMAND [ARG...]
 *
 *     while COMMAND runs. Whatever calls the function counts.
 *
 *   function-cost [--root DIR] [--until NEXT] FUNCTION
 *
 *     since boot, as the tracer has recorded it by the kernel's command line:
 *     `ftrace=function_graph ftrace_filter=FUNCTION`. That tracer starts with
 *     the core initcalls. What runs before, as scheduling domains are built
 *     the first time, the plain function tracer sees, which knows no ends:
 *     `ftrace=function ftrace_filter=FUNCTION,NEXT` and `--until NEXT` time
 *     from the entry of FUNCTION to the next entry of NEXT, to the microsecond.
 *
 * `--root` has sys/kernel/tracing/ below DIR, for tests.
 *
 * With the filter nothing but these functions is traced, so that what they
 * call runs at its own speed. Prints
 *
 *   FUNCTION: N calls, total US us, mean US us, max US us
 *
 * The time includes any sleep within a call. No call, a call without an end, a
 * lost event or a failed command is an error.
 */
#include <dirent.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "workload.h"

static const char *root = "", *function, *until;
static struct { unsigned long calls; double total, max; } cost;	/* in us */
static double entered = -1;		/* with `until`: of an open call, in s */
static unsigned long open_calls;

static const char *file(const char *name)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/sys/kernel/tracing/%s", root, name);
	return path;
}

static void set(const char *name, const char *value)
{
	if (!write_text(file(name), value, O_TRUNC))
		die(1, "%s = '%s': %s", file(name), value, strerror(errno));
}

static void mount_tracing(void)
{
	if (!access(file("trace"), F_OK))
		return;
	if (mount("tracefs", file(""), "tracefs", MS_NOSUID, NULL))
		die(1, "%s: %s: does the kernel have FUNCTION_GRAPH_TRACER?", file(""), strerror(errno));
}

/* The name itself, or that of a piece the compiler has made of it. */
static bool is_function(const char *text, size_t len, const char *name)
{
	static const char *const pieces[] = { "", ".isra.", ".constprop.", ".part.", ".cold" };
	size_t own = strlen(name);

	if (len < own || memcmp(text, name, own))
		return false;
	for (size_t i = 1; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
		size_t piece = strlen(pieces[i]);

		if (len >= own + piece && !memcmp(text + own, pieces[i], piece))
			return true;
	}
	return len == own;
}

static void add_call(double us)
{
	cost.calls++;
	cost.total += us;
	if (us > cost.max)
		cost.max = us;
}

/* A whole call, ` 1)   12.345 us |  FUNCTION();`, or its end, where `}` and the
 * name in a comment stand for that. */
static void graph_line(const char *line)
{
	const char *bar = strchr(line, '|'), *unit = strstr(line, " us "), *name, *end;
	const char *from = unit;

	if (!bar)
		return;
	name = bar + 1 + strspn(bar + 1, " ");
	if (!strncmp(name, "} /* ", 5))
		name += 5;
	end = name + strcspn(name, "( */");
	if (!is_function(name, end - name, function))
		return;
	if (strstr(end, "{")) {
		open_calls++;		/* its time stands at its end */
		return;
	}
	while (from && from > line && strchr("0123456789.", from[-1]))
		from--;
	if (!unit || unit > bar || from == unit)
		die(1, "a call without a time: %s", line);
	if (*end != '(' && open_calls-- == 0)
		die(1, "a call without a beginning: %s", line);
	add_call(strtod(from, NULL));
}

/* `TASK-PID [CPU] FLAGS SECONDS: FUNCTION <-CALLER` */
static void entry_line(const char *line)
{
	const char *name = strstr(line, ": "), *caller = strstr(line, " <-");
	const char *from = name;
	double at;

	/* A task's name may hold a colon too: the last one counts. */
	for (const char *next = name; next && caller && next < caller; next = strstr(next + 1, ": "))
		name = from = next;
	if (!name || !caller || name > caller)
		return;
	while (from > line && strchr("0123456789.", from[-1]))
		from--;
	name += 2;
	at = strtod(from, NULL);
	if (is_function(name, caller - name, function)) {
		if (entered >= 0)
			die(1, "%s is entered again before %s", function, until);
		entered = at;
	} else if (is_function(name, caller - name, until) && entered >= 0) {
		add_call((at - entered) * 1e6);
		entered = -1;
	}
}

static void read_trace(void)
{
	char line[4096];
	FILE *trace = fopen(file("trace"), "re");

	if (!trace)
		die(1, "%s: %s", file("trace"), strerror(errno));
	while (fgets(line, sizeof(line), trace)) {
		line[strcspn(line, "\n")] = '\0';
		if (strstr(line, "LOST") && strstr(line, "EVENTS"))
			die(1, "the trace has lost events: %s", line);
		if (*line == '#')
			continue;
		if (until)
			entry_line(line);
		else
			graph_line(line);
	}
	if (ferror(trace))
		die(1, "%s: %s", file("trace"), strerror(errno));
	fclose(trace);
	if (open_calls || entered >= 0)
		die(1, "a call of %s has no end in the trace", function);
}

/* What a CPU's ring buffer has lost: the counters of its `stats` file. */
static void check_stats(const char *cpu)
{
	static const char *const lost[] = { "overrun: ", "commit overrun: ", "dropped events: " };
	char name[300], line[256];
	FILE *stats;

	snprintf(name, sizeof(name), "per_cpu/%s/stats", cpu);
	stats = fopen(file(name), "re");
	if (!stats)
		die(1, "%s: %s", file(name), strerror(errno));
	while (fgets(line, sizeof(line), stats)) {
		for (size_t i = 0; i < sizeof(lost) / sizeof(lost[0]); i++) {
			size_t len = strlen(lost[i]);

			if (!strncmp(line, lost[i], len) && strtoul(line + len, NULL, 10))
				die(1, "%s lost events: %.*s; boot with a larger trace_buf_size=",
				    cpu, (int)strcspn(line, "\n"), line);
		}
	}
	fclose(stats);
}

static void check_losses(void)
{
	DIR *dir = opendir(file("per_cpu"));
	struct dirent *entry;
	bool any = false;

	while (dir && (entry = readdir(dir))) {
		if (strncmp(entry->d_name, "cpu", 3))
			continue;
		check_stats(entry->d_name);
		any = true;
	}
	if (!any)
		die(1, "%s: nothing tells whether events were lost", file("per_cpu"));
	closedir(dir);
}

/* The trace's text is made when it is read, so this is in time for boot too. */
static void set_format(void)
{
	set("options/funcgraph-duration", "1");
	set("options/funcgraph-tail", "1");
	set("options/funcgraph-overhead", "0");
}

static void run(char **command)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		execvp(command[0], command);
		die(127, "%s: %s", command[0], strerror(errno));
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		die(1, "%s: %s", command[0], strerror(errno));
	set("tracing_on", "0");
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		die(1, "%s failed: %s %d", command[0], WIFEXITED(status) ? "exit" : "signal",
		    WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

/* The function, and the pieces that a compiler may have made of it. A name's
 * fault is reported only if a newline ends it, and one at a time. */
static void set_filter(void)
{
	char name[128], pieces[128];
	bool found;

	snprintf(name, sizeof(name), "%s\n", function);
	snprintf(pieces, sizeof(pieces), "%s.*\n", function);
	found = write_text(file("set_ftrace_filter"), name, O_TRUNC);
	if (!write_text(file("set_ftrace_filter"), pieces, O_APPEND) && !found)
		die(1, "%s: no function of that name can be traced (%s)", function, strerror(errno));
}

static void trace_command(char **command)
{
	set("tracing_on", "0");
	set("current_tracer", "nop");
	set_filter();
	set("max_graph_depth", "1");
	set("trace", "");
	set("current_tracer", "function_graph");
	set_format();
	set("tracing_on", "1");
	run(command);
}

static void take_boot_trace(void)
{
	const char *wanted = until ? "function" : "function_graph";
	char tracer[64];

	if (!read_line(file("current_tracer"), tracer, sizeof(tracer)))
		die(1, "%s: %s", file("current_tracer"), strerror(errno));
	if (strcmp(tracer, wanted))
		die(1, "the tracer is '%s': boot with ftrace=%s ftrace_filter=%s%s%s", tracer, wanted,
		    function, until ? "," : "", until ? until : "");
	set("tracing_on", "0");
	if (!until)
		set_format();
}

int main(int argc, char **argv)
{
	char **command = NULL;
	int i = 1;

	for (; i + 1 < argc && !strncmp(argv[i], "--", 2); i += 2) {
		if (!strcmp(argv[i], "--root"))
			root = argv[i + 1];
		else if (!strcmp(argv[i], "--until"))
			until = argv[i + 1];
		else
			break;
	}
	if (i < argc)
		function = argv[i++];
	if (i + 1 < argc && !strcmp(argv[i], "--") && !until)
		command = &argv[i + 1];
	else if (i < argc)
		function = NULL;
	if (!function || !*function || *function == '-' || strlen(function) > 100)
		die(2, "usage: function-cost [--root DIR] FUNCTION -- COMMAND [ARG...]\n"
		       "       function-cost [--root DIR] [--until NEXT] FUNCTION");
	mount_tracing();
	if (command)
		trace_command(command);
	else
		take_boot_trace();
	check_losses();
	read_trace();
	if (command)
		set("current_tracer", "nop");
	if (!cost.calls)
		die(1, "no call of %s was recorded%s", function, command || until ? "" :
		    "; function_graph sees nothing before the core initcalls: see --until");
	printf("%s: %lu calls, total %.3f us, mean %.3f us, max %.3f us\n", function,
	       cost.calls, cost.total, cost.total / cost.calls, cost.max);
	return 0;
}

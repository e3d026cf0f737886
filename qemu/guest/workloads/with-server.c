// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs a program against a server on the loopback interface.
 *
 *   with-server PORT SERVER [ARG...] -- COMMAND [ARG...]
 *
 * Brings the interface up, starts the server, waits until something listens on
 * the TCP port, runs the command, and kills the server with all it has
 * started. Exits as the command does. The server must not end by itself
 * before: that is an error, as is one that does not listen within a minute.
 * What the server prints on stdout is dropped: it would get into the lines of
 * the command.
 */
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "workload.h"

#ifndef PATIENCE_S
#define PATIENCE_S	60		/* for the server to listen; tests have less */
#endif
#define PAUSE_US	2000

static pid_t server;

static void end_server(void)
{
	if (server > 0)
		kill(-server, SIGKILL);
}

static void bring_up_loopback(void)
{
	struct ifreq request = { .ifr_name = "lo" };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		die(1, "sockets: %s: does the kernel have INET?", strerror(errno));
	if (ioctl(fd, SIOCGIFFLAGS, &request))
		die(1, "lo: %s", strerror(errno));
	if (!(request.ifr_flags & IFF_UP)) {
		request.ifr_flags |= IFF_UP;
		if (ioctl(fd, SIOCSIFFLAGS, &request))
			die(1, "lo: %s", strerror(errno));
	}
	close(fd);
}

/* Whether a server listens: a connection is opened, and closed at once. */
static bool listens(unsigned int port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr = { htonl(INADDR_LOOPBACK) },
	};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool ok;

	if (fd < 0)
		die(1, "sockets: %s", strerror(errno));
	ok = !connect(fd, (struct sockaddr *)&address, sizeof(address));
	close(fd);
	return ok;
}

static pid_t start(char **command, bool is_server)
{
	pid_t pid = fork();

	if (pid < 0)
		die(1, "fork: %s", strerror(errno));
	if (pid > 0)
		return pid;
	if (is_server) {
		setpgid(0, 0);
		dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
	}
	execvp(command[0], command);
	dprintf(STDERR_FILENO, "%s: %s\n", command[0], strerror(errno));
	_exit(127);
}

static const char *end_of(int status)
{
	static char text[32];

	if (WIFEXITED(status))
		snprintf(text, sizeof(text), "exit %d", WEXITSTATUS(status));
	else
		snprintf(text, sizeof(text), "signal %d", WTERMSIG(status));
	return text;
}

static void start_server(char **command, unsigned int port)
{
	int64_t deadline = now() + PATIENCE_S * SECOND;
	int status;

	if (listens(port))
		die(1, "something listens on port %u already", port);
	server = start(command, true);
	setpgid(server, server);	/* whoever comes first */
	while (!listens(port)) {
		if (waitpid(server, &status, WNOHANG) == server)
			die(1, "the server %s ended before it listened: %s", command[0], end_of(status));
		if (now() >= deadline)
			die(1, "the server %s does not listen on port %u", command[0], port);
		usleep(PAUSE_US);
	}
}

/* Returns the command's status; the server must outlive it. */
static int run(char **command, const char *server_name)
{
	pid_t client = start(command, false);

	for (;;) {
		int status;
		pid_t pid = wait(&status);

		if (pid == client)
			return status;
		if (pid == server) {
			kill(client, SIGKILL);
			die(1, "the server %s ended too early: %s", server_name, end_of(status));
		}
		if (pid < 0 && errno != EINTR)
			die(1, "wait: %s", strerror(errno));
	}
}

int main(int argc, char **argv)
{
	char **client = NULL;
	unsigned int port;
	int status;

	for (int i = 3; i + 1 < argc && !client; i++) {
		if (!strcmp(argv[i], "--")) {
			argv[i] = NULL;
			client = &argv[i + 1];
		}
	}
	if (!client)
		die(2, "usage: with-server PORT SERVER [ARG...] -- COMMAND [ARG...]");
	port = number(argv[1], 1, 65535, "PORT");
	atexit(end_server);
	bring_up_loopback();
	start_server(&argv[2], port);
	status = run(client, argv[2]);
	if (WIFEXITED(status))
		exit(WEXITSTATUS(status));
	die(1, "%s: %s", client[0], end_of(status));
}

// A peer that begins anew, with other keys: what this end posts to its first life fails, and its second life is another peer.
// run: --dev shm
// seconds: 60

#define _GNU_SOURCE

#include "common.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

// What an end tells the other over a socket.
struct told {
	uint32_t qpn, rkey;
	uint64_t address;
	union ibv_gid gid;
	int open;    // descriptors beyond the standard streams when it began
	int blocked; // whether a signal was blocked then
	pid_t pid;
};

static int open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	CHECK(dir);
	int count = 0;
	for (struct dirent *entry; (entry = readdir(dir));)
		count += atoi(entry->d_name) > 2 && atoi(entry->d_name) != dirfd(dir);
	closedir(dir);
	return count;
}

static struct sockaddr_un name_of(const char *path)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	CHECK(strlen(path) < sizeof(name.sun_path));
	strcpy(name.sun_path, path);
	return name;
}

// Tells the other end who this is, and connects a queue pair with its.
static struct told meet(int socket, struct end *e, struct told mine)
{
	struct told others;
	struct end far = {0};
	e->qp = make_qp(e, IBV_QPT_RC);
	mine.qpn = e->qp->qp_num, mine.rkey = e->mr->rkey, mine.address = address(e, 0), mine.gid = e->gid;
	CHECK(write(socket, &mine, sizeof(mine)) == sizeof(mine));
	CHECK(recv(socket, &others, sizeof(others), MSG_WAITALL) == sizeof(others));
	far.gid = others.gid;
	OK(to_init(e->qp, ALL_RIGHTS));
	OK(to_rtr(e->qp, e, &far, others.qpn));
	OK(to_rts(e->qp, (struct patience){12, 3, 7}));
	OK(post_recv(e->qp, 1, at(e, 4096, 4096)));
	char ready = 0;
	CHECK(write(socket, &ready, 1) == 1 && read(socket, &ready, 1) == 1);
	return others;
}

// The program that begins anew, in both of its lives.
static int peer(const char *path)
{
	struct told mine = {.open = open_descriptors(), .pid = getpid()};
	sigset_t blocked;
	CHECK(sigprocmask(SIG_SETMASK, NULL, &blocked) == 0);
	mine.blocked = sigismember(&blocked, SIGUSR1);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	CHECK(sigprocmask(SIG_BLOCK, &blocked, NULL) == 0);
	CHECK(open("/dev/null", O_RDONLY) >= 0);
	// Its next life has the environment that this one began with.
	CHECK(!getenv("OF_ONE_LIFE") && setenv("OF_ONE_LIFE", "1", 1) == 0);

	struct sockaddr_un name = name_of(path);
	int socket_ = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(socket_ >= 0 && connect(socket_, (struct sockaddr *)&name, sizeof(name)) == 0);
	struct end e;
	open_end(&e, 0);
	meet(socket_, &e, mine);
	fill(e.memory, 3000, 7);
	// Before this call its first life ends.
	OK(post_send(e.qp, 2, at(&e, 0, 3000)));
	DONE(e.cq, 2, IBV_WC_SUCCESS);
	char end;
	CHECK(read(socket_, &end, 1) == 0);
	return 42;
}

static int accept_from(int listener)
{
	int socket = accept(listener, NULL, NULL);
	CHECK(socket >= 0);
	return socket;
}

int main(int argc, char **argv)
{
	if (argc > 2 && !strcmp(argv[1], "peer"))
		return peer(argv[2]);
	char path[100];
	snprintf(path, sizeof(path), "/tmp/softnic-restart-%d", getpid());
	struct sockaddr_un name = name_of(path);
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&name, sizeof(name)) == 0 && listen(listener, 2) == 0);

	char *words[] = {argv[0], "peer", path, NULL};
	extern char **environ;
	pid_t child;
	CHECK(setenv("SOFTNIC_FAULT", "verbs.post_send#1=restart", 1) == 0);
	EQ(posix_spawn(&child, "/proc/self/exe", NULL, NULL, words, environ), 0);
	CHECK(unsetenv("SOFTNIC_FAULT") == 0);

	PART("the first life");
	struct end e;
	open_end(&e, 0);
	int socket_ = accept_from(listener);
	struct told first = meet(socket_, &e, (struct told){0});
	EQ(first.pid, child);
	char end;
	CHECK(read(socket_, &end, 1) == 0);
	close(socket_);
	OK(post_rdma(e.qp, IBV_WR_RDMA_WRITE, 3, at(&e, 0, 8), first.address, first.rkey));
	DONE(e.cq, 3, IBV_WC_RETRY_EXC_ERR);
	DONE(e.cq, 1, IBV_WC_WR_FLUSH_ERR);
	OK(ibv_destroy_qp(e.qp));

	PART("the second life");
	socket_ = accept_from(listener);
	struct told second = meet(socket_, &e, (struct told){0});
	EQ(second.pid, child);
	CHECK(second.qpn != first.qpn || second.rkey != first.rkey);
	EQ(second.open, 0);
	CHECK(!second.blocked);
	DONE(e.cq, 1, IBV_WC_SUCCESS);
	CHECK(same(e.memory + 4096, 3000, 7));
	// A key of the first life is none of the second's.
	OK(post_rdma(e.qp, IBV_WR_RDMA_WRITE, 4, at(&e, 0, 8), second.address, first.rkey));
	DONE(e.cq, 4, IBV_WC_REM_ACCESS_ERR);
	close(socket_);
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
	OK(ibv_destroy_qp(e.qp));
	close_end(&e);
	unlink(path);
	return 0;
}

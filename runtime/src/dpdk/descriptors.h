/* What DPDK opens is close-on-exec from the first moment, so that no program that the process starts inherits it.
 *
 * DPDK opens files, sockets and events without that, and setting it later would come too late for a thread that forks meanwhile. The build script has
 * these in place of the C library's in the archives that open anything (see `OPENERS` there). */
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

int softnic_openat64(int folder, const char *path, int flags, ...)
{
    mode_t mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list more;
        va_start(more, flags);
        mode = va_arg(more, mode_t);
        va_end(more);
    }
    return openat(folder, path, flags | O_CLOEXEC, mode);
}

int softnic_open64(const char *path, int flags, ...)
{
    mode_t mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list more;
        va_start(more, flags);
        mode = va_arg(more, mode_t);
        va_end(more);
    }
    return open(path, flags | O_CLOEXEC, mode);
}

int softnic_socket(int domain, int type, int protocol)
{
    return socket(domain, type | SOCK_CLOEXEC, protocol);
}

int softnic_accept(int fd, struct sockaddr *address, socklen_t *length)
{
    return accept4(fd, address, length, SOCK_CLOEXEC);
}

ssize_t softnic_recvmsg(int fd, struct msghdr *message, int flags)
{
    return recvmsg(fd, message, flags | MSG_CMSG_CLOEXEC);
}

int softnic_pipe(int ends[2])
{
    return pipe2(ends, O_CLOEXEC);
}

int softnic_eventfd(unsigned int value, int flags)
{
    return eventfd(value, flags | EFD_CLOEXEC);
}

int softnic_epoll_create(int size)
{
    (void)size;
    return epoll_create1(EPOLL_CLOEXEC);
}

int softnic_epoll_create1(int flags)
{
    return epoll_create1(flags | EPOLL_CLOEXEC);
}

int softnic_timerfd_create(int clock, int flags)
{
    return timerfd_create(clock, flags | TFD_CLOEXEC);
}

int softnic_memfd_create(const char *name, unsigned int flags)
{
    return memfd_create(name, flags | MFD_CLOEXEC);
}

int softnic_mkstemp64(char *pattern)
{
    return mkostemp(pattern, O_CLOEXEC);
}

int softnic_dup(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

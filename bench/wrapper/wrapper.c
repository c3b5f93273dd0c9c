/*
 * The least that any program can do around a CNI delegate: fork, exec, wait. Built static, it is what a wrapper costs
 * where no runtime of a language comes on top.
 *
 *	wrapper DELEGATE
 */
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int status;
	pid_t pid;

	if (argc != 2)
		return 2;
	pid = fork();
	if (pid < 0)
		return 127;
	if (pid == 0) {
		execv(argv[1], argv + 1);
		_exit(127);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return 126;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 126;
}

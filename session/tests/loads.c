// SPDX-License-Identifier: MIT OR Apache-2.0
// Loads and unloads the library `plugin.so` that lies beside the file that it is given, in this process and in a child. It has mapped a
// file for execution that is no object.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int once(const char *path, int n) {
    void *library = dlopen(path, RTLD_NOW);
    int (*plug)(int) = library ? (int (*)(int))dlsym(library, "plug") : 0;
    int result = plug ? plug(n) : -1;
    if (library) dlclose(library);
    return result;
}

int main(int argc, char **argv) {
    char path[4096];
    snprintf(path, sizeof path, "%s", argv[1]);
    strcpy(strrchr(path, '/'), "/plugin.so");
    clearenv();
    int text = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (write(text, "no object", 9) != 9 || mmap(0, 9, PROT_READ | PROT_EXEC, MAP_PRIVATE, text, 0) == MAP_FAILED) return 8;
    int wrong = 0, status = 9;
    for (int n = 0; n < 20; n++) wrong += once(path, 10) != 135;
    if (fork() == 0) _exit(once(path, 5) != 30);
    wait(&status);
    return wrong || status ? 9 : argc > 3 ? atoi(argv[3]) : 0;
}

// SPDX-License-Identifier: MIT OR Apache-2.0
// Loads and unloads the library `plugin.so` that lies beside the file that it is given, in this process and in a child.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    int wrong = 0, status = 9;
    for (int n = 0; n < 20; n++) wrong += once(path, 10) != 135;
    if (fork() == 0) _exit(once(path, 5) != 30);
    wait(&status);
    return wrong || status ? 9 : argc > 3 ? atoi(argv[3]) : 0;
}

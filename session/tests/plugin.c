// SPDX-License-Identifier: MIT OR Apache-2.0
// What loads.c loads. Its functions are called before anybody but the loader knows of it.
__attribute__((noinline)) int inner(int n) { return 3 * n; }
int plug(int n) {
    int sum = 0;
    while (n--) sum += inner(n);
    return sum;
}
__attribute__((constructor)) static void begins(void) { inner(7); }

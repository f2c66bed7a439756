/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Slots as in harness.h; those with v also lose the vector registers that C may lose. */
    HANDLER g_entry, 0, 0
    HANDLER g_exit, 1, 0
    HANDLER v_entry, 0, 1
    HANDLER v_exit, 1, 1
    HANDLER g_program0, 2, 0
    HANDLER g_program1, 3, 0
    HANDLER g_program2, 4, 0
    HANDLER g_program3, 5, 0
    HANDLER g_program4, 6, 0
    HANDLER g_program5, 7, 0
    HANDLER v_program0, 2, 1
    HANDLER v_program1, 3, 1
    HANDLER v_program2, 4, 1
    HANDLER v_program3, 5, 1
    HANDLER v_program4, 6, 1
    HANDLER v_program5, 7, 1

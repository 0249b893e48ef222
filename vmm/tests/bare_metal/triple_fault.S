# A fault with no way to handle it.
.include "program.inc"
main:
        say "about to fault\n"
        lidt [no_table]
        ud2

.section .rodata
no_table: .skip 10

# The least: serial output and the debug-exit port.
.include "program.inc"
main:
        say "hello from 64-bit mode\n"
        # The command line's second word.
        mov esi, [rdi + 16]
1:      lodsb
        cmp al, ' '
        jne 1b
        call print
        say "\n"
        mov eax, 0x2a
        ret

# Halts with interrupts off: nothing can ever wake this CPU.
.include "program.inc"
main:
        say "good night\n"
        call asleep
        say "woken by nothing\n"
        mov eax, 1
        ret

asleep:
        cli
        hlt
        ret

# Spins for ever. The command line says how: "off" with interrupts off and one pending, "on" with a timer ticking.
.include "program.inc"
main:
        mov r14d, 0xfee00000
        mov dword ptr [r14 + 0xf0], 0x1ff
        mov ecx, 0x40
        mov rax, offset tick
        call set_vector
        mov dword ptr [r14 + 0x3e0], 0xb
        mov dword ptr [r14 + 0x320], 0x20040
        mov dword ptr [r14 + 0x380], 1000000
        mov esi, [rdi + 16]
        cmp byte ptr [rsi + 8], 'f'
        je spinning
        sti
spinning:
        jmp spinning

tick:
        mov dword ptr [r14 + 0xb0], 0
        iretq

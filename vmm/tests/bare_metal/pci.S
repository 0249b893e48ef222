# The PCI bus by both configuration mechanisms, BARs, MSI-X and DMA, with the test device 1234:0d00: a write of
# n to its register 0 raises vector n, a write of an address to register 8 stores a pattern there.
.include "program.inc"

.equ APIC, 0xfee00000
.equ ECAM, 0xe0000000

# R14: local APIC. R13: the test device's configuration space in the ECAM. R12: BAR 0. R11: MSI-X table.
main:
        mov r14d, APIC
        mov dword ptr [r14 + 0xf0], 0x1ff
        mov ecx, 0x60
        mov rax, offset message
        call set_vector
        # All devices on bus 0.
        xor ebx, ebx
1:      mov eax, ebx
        shl eax, 11
        or eax, 0x80000000
        mov dx, 0xcf8
        out dx, eax
        mov dx, 0xcfc
        in eax, dx
        mov ecx, ebx
        shl ecx, 15
        mov esi, ECAM
        add rsi, rcx
        cmp eax, [rsi]
        jne fail
        cmp eax, -1
        je 2f
        cmp eax, 0x0d001234
        cmove r13, rsi
        call print_hex
        say "\n"
2:      inc ebx
        cmp ebx, 32
        jb 1b
        test r13, r13
        jz fail

        # Both mechanisms reach single bytes and words.
        movzx eax, byte ptr [r13 + 0xb]
        call print_hex
        say " class\n"
        # BAR 0's size, and that it keeps its address; memory and bus master on.
        mov esi, [r13 + 0x10]
        mov dword ptr [r13 + 0x10], -1
        mov eax, [r13 + 0x10]
        call print_hex
        mov [r13 + 0x10], esi
        say " BAR mask\n"
        and esi, -16
        jz fail
        mov r12, rsi
        mov word ptr [r13 + 4], 6

        # The MSI-X capability.
        movzx ebx, byte ptr [r13 + 0x34]
3:      test ebx, ebx
        jz fail
        cmp byte ptr [r13 + rbx], 0x11
        je 4f
        movzx ebx, byte ptr [r13 + rbx + 1]
        jmp 3b
4:      mov eax, [r13 + rbx + 4]
        mov ecx, eax
        and ecx, 7
        and eax, -8
        mov r11d, [r13 + 0x10 + rcx * 4]
        and r11d, -16
        add r11, rax
        # Entries 0 and 1: vector 0x60 to this CPU; entry 1 masked.
        mov dword ptr [r11], APIC
        mov dword ptr [r11 + 4], 0
        mov dword ptr [r11 + 8], 0x60
        mov dword ptr [r11 + 12], 0
        mov dword ptr [r11 + 16], APIC
        mov dword ptr [r11 + 20], 0
        mov dword ptr [r11 + 24], 0x60
        mov dword ptr [r11 + 28], 1
        or word ptr [r13 + rbx + 2], 0x8000

        mov dword ptr [r12], 0
        take_interrupts messages, 1
        cmp dword ptr [messages], 1
        jne fail
        say "message\n"
        mov dword ptr [r12], 1
        take_interrupts messages, 2
        cmp dword ptr [messages], 1
        jne fail
        say "masked\n"
        mov dword ptr [r11 + 28], 0
        take_interrupts messages, 2
        cmp dword ptr [messages], 2
        jne fail
        say "pending, then unmasked\n"

        mov rax, offset dma_target
        mov [r12 + 8], rax
        mov rax, [dma_target]
        call print_hex
        say " by DMA\n"
        mov word ptr [r13 + 4], 2
        mov rax, offset dma_target + 8
        mov [r12 + 8], rax
        mov rax, [dma_target + 8]
        call print_hex
        say " without bus mastering\n"
        xor eax, eax
        ret

fail:
        say "FAIL\n"
        mov eax, 1
        jmp exit

message:
        inc dword ptr [messages]
        mov dword ptr [r14 + 0xb0], 0
        iretq

.bss
.align 8
dma_target: .skip 16
messages:   .skip 4

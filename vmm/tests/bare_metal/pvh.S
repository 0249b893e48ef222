# The PVH entry: 32-bit, EBX pointing to the start information. Prints what that says.
.intel_syntax noprefix
.section .multiboot, "a"
.section .note, "a", @note
.align 4
        .long 4, 4, 18
        .asciz "Xen"
        .long _start

.text
.code32
.globl _start
_start:
        mov esp, offset stack_top
        mov esi, offset magic_text
        call print
        mov eax, [ebx]
        call print_hex
        mov esi, offset command_line_text
        call print
        mov esi, [ebx + 24]
        call print
        mov esi, offset modules_text
        call print
        mov eax, [ebx + 12]
        call print_hex
        # The module's first bytes.
        mov eax, [ebx + 16]
        mov esi, [eax]
        call print
        mov esi, offset map_text
        call print
        mov eax, [ebx + 48]
        call print_hex
        mov esi, offset rsdp_text
        call print
        mov esi, [ebx + 32]
        mov ecx, 8
1:      lodsb
        call put
        loop 1b
        mov al, '\n'
        call put
        mov eax, 0
        mov dx, 0xf4
        out dx, eax
1:      hlt
        jmp 1b

print:  lodsb
        test al, al
        jz 1f
        call put
        jmp print
1:      ret

put:    mov dx, 0x3f8
        out dx, al
        ret

print_hex:
        mov ecx, 8
2:      rol eax, 4
        push eax
        and eax, 15
        mov al, [eax + hex_digits]
        call put
        pop eax
        loop 2b
        ret

.section .rodata
hex_digits:        .ascii "0123456789abcdef"
magic_text:        .asciz "magic "
command_line_text: .asciz "\ncommand line "
modules_text:      .asciz "\nmodules "
map_text:          .asciz "\nmap entries "
rsdp_text:         .asciz "\nroot pointer "

.bss
        .skip 4096
stack_top:

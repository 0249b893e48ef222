# SYSRET to user mode and SYSCALL back, twice; then INT from user mode, whose stack is the task state's.
.include "program.inc"

.equ KERNEL_CODE, 0x08
.equ USER_BASE, 0x1b                    # SYSRET: data at + 8, 64-bit code at + 16
.equ TASK, 0x30

main:
        mov [kernel_stack], rsp
        # User mode may use all of the identity map.
        or qword ptr [pml4], 4
        mov ecx, 4
        mov rdi, offset pdpt
1:      or qword ptr [rdi], 4
        add rdi, 8
        loop 1b
        mov ecx, 4 * 512
        mov rdi, offset directories
1:      or qword ptr [rdi], 4
        add rdi, 8
        loop 1b
        mov rax, cr3
        mov cr3, rax

        mov rax, offset task_state
        mov [task_descriptor + 2], ax
        shr rax, 16
        mov [task_descriptor + 4], al
        mov [task_descriptor + 7], ah
        lgdt [user_gdt_pointer]
        mov eax, TASK
        ltr ax
        mov qword ptr [task_state + 4], offset exception_stack

        mov ecx, 14
        mov rax, offset page_fault
        call set_vector
        mov ecx, 0x80
        mov rax, offset interrupt
        call set_vector
        # Privilege 3 may call gate 0x80.
        or byte ptr [idt + 0x80 * 16 + 5], 0x60

        mov ecx, 0xc0000080             # EFER: SCE
        rdmsr
        or eax, 1
        wrmsr
        mov ecx, 0xc0000081             # STAR
        xor eax, eax
        mov edx, USER_BASE << 16 | KERNEL_CODE
        wrmsr
        mov ecx, 0xc0000082             # LSTAR
        mov rax, offset system_call
        xor edx, edx
        wrmsr
        mov ecx, 0xc0000084             # SFMASK: all that kernels clear
        mov eax, 0x47700
        wrmsr

        mov rcx, offset user
        mov r11d, 2
        mov rsp, offset user_stack
        sysretq

user:
        mov eax, 0x1234
        syscall
        mov eax, cs
        mov [user_code], eax
        mov eax, 0x5678
        syscall
        int 0x80
        hlt

# Tells what was called with and where the CPU is now, and goes back.
system_call:
        mov [user_stack_pointer], rsp
        mov rsp, [kernel_stack]
        push rcx
        push r11
        call print_hex
        say " called, code segment "
        mov eax, cs
        call print_hex
        say "\n"
        pop r11
        pop rcx
        mov rsp, [user_stack_pointer]
        sysretq

interrupt:
        mov eax, [user_code]
        call print_hex
        say " was user mode's\n"
        mov rax, [rsp + 8]
        call print_hex
        say " came by a gate, stack "
        # Five words were pushed on the task state's stack.
        mov rax, offset exception_stack
        sub rax, rsp
        call print_hex
        say "\n"
        mov rsp, [kernel_stack]
        xor eax, eax
        ret

page_fault:
        pop rax
        call print_hex
        say " is the error of a page fault in code segment "
        mov rax, [rsp + 8]
        call print_hex
        say " at "
        mov rax, [rsp]
        call print_hex
        say "\n"
        mov eax, 1
        jmp exit

.section .rodata
.align 8
user_gdt_pointer: .word 0x3f
        .quad user_gdt

.data
.align 8
user_gdt: .quad 0, 0x00af9b000000ffff, 0x00cf93000000ffff, 0, 0x00cff3000000ffff, 0x00affb000000ffff
task_descriptor: .word 103, 0
        .byte 0, 0x89, 0, 0
        .quad 0

.bss
.align 16
task_state: .skip 104
kernel_stack: .skip 8
user_stack_pointer: .skip 8
user_code: .skip 8
.align 16
        .skip 4096
exception_stack:
        .skip 4096
user_stack:

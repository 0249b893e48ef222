# SYSRET to user mode and SYSCALL back, twice; then INT from user mode, whose stack is the task state's.
.include "program.inc"
.include "user.inc"

main:
        mov [kernel_stack], rsp
        mov ecx, 14
        mov rax, offset page_fault
        call set_vector
        mov ecx, 0x80
        mov rax, offset interrupt
        call set_vector
        # Privilege 3 may call gate 0x80.
        or byte ptr [idt + 0x80 * 16 + 5], 0x60
        call prepare_user_mode

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

.bss
user_code: .skip 8

# What happens to user code: IRET to it, SWAPGS and segment bases, SSE state across system calls, page faults and
# divisions by zero with their stacks, and a timer's interrupt.
.include "program.inc"
.include "user.inc"

.equ APIC, 0xfee00000
.equ GS_BASE, 0xc0000101
.equ NOWHERE, 0x100000000000

main:
        mov [kernel_stack], rsp
        mov ecx, 0
        mov rax, offset division
        call set_vector
        # By the interrupt stack table.
        mov byte ptr [idt + 4], 1
        mov ecx, 14
        mov rax, offset page_fault
        call set_vector
        mov ecx, 0x40
        mov rax, offset timer
        call set_vector
        call prepare_user_mode

        mov r14d, APIC
        mov dword ptr [r14 + 0xf0], 0x1ff
        mov dword ptr [r14 + 0x3e0], 0xb
        mov dword ptr [r14 + 0x320], 0x40
        mov ecx, 0xc0000100             # FS base
        mov rax, offset user_fs
        xor edx, edx
        wrmsr
        inc ecx                         # GS base: the kernel's until the exchange
        mov rax, offset kernel_gs
        wrmsr
        inc ecx                         # KERNEL_GS_BASE: user code's until the exchange
        mov rax, offset user_gs
        wrmsr

        push USER_DATA
        push offset user_stack
        push 0x202
        push USER_CODE
        push offset user
        swapgs
        iretq

.macro tell text
        mov rsi, offset 9f
        syscall
        .section .rodata
9:      .asciz "\text"
        .text
.endm

user:
        mov rax, fs:[0]
        tell " at FS\n"
        mov rax, gs:[0]
        tell " at GS\n"
        pushfq
        pop rax
        and eax, 0x200
        tell " interrupt flag\n"
        # SSE, as programs use it.
        movdqu xmm7, [numbers]
        paddq xmm7, xmm7
        tell " before\n"
        movq rax, xmm7
        tell " in XMM7\n"
        mov rax, NOWHERE
1:      mov rax, [rax]
        tell " in place of what is not mapped\n"
        xor eax, eax
        xor edx, edx
        xor ecx, ecx
2:      div ecx
        tell " in place of the quotient\n"
        # The kernel starts the timer at this call, and the interrupt sets the flag.
        mov byte ptr [start_timer], 1
        tell " before the timer\n"
3:      cmp dword ptr [timer_rang], 0
        je 3b
        mov eax, [timer_rang]
        tell " from the timer's handler\n"
        mov byte ptr [finished], 1
        syscall

# Prints RAX and the text at RSI.
system_call:
        swapgs
        mov [user_stack_pointer], rsp
        mov rsp, [kernel_stack]
        cmp byte ptr [finished], 0
        jne finish
        push rcx
        push r11
        call print_hex
        call print
        cmp byte ptr gs:[0], 0x44
        je 4f
        say "not the kernel's GS\n"
4:      cmp byte ptr [start_timer], 0
        je 5f
        mov byte ptr [start_timer], 0
        mov eax, APIC
        mov dword ptr [rax + 0x380], 20000
5:      pop r11
        pop rcx
        mov rsp, [user_stack_pointer]
        swapgs
        sysretq

finish:
        xor eax, eax
        ret

page_fault:
        mov rax, offset exception_stack
        sub rax, rsp
        call print_hex
        say " on the page fault's stack, error "
        mov rax, [rsp]
        call print_hex
        say ", address "
        mov rax, cr2
        call print_hex
        say "\n"
        add rsp, 8
        # Over the instruction.
        add qword ptr [rsp], 3
        mov eax, 0xface
        iretq

division:
        mov rax, offset separate_stack
        sub rax, rsp
        call print_hex
        say " on the division's stack, stack segment "
        mov rax, [rsp + 32]
        call print_hex
        say "\n"
        add qword ptr [rsp], 2
        mov eax, 0xd1f
        iretq

timer:
        push rax
        mov eax, APIC
        mov dword ptr [rax + 0xb0], 0
        mov eax, [rsp + 16]
        and eax, 3
        mov [timer_rang], eax
        pop rax
        iretq

.section .rodata
.align 16
numbers: .quad 0x1111, 0x2222
user_fs: .quad 0xf5
user_gs: .quad 0x65
kernel_gs: .quad 0x44

.bss
.align 4
timer_rang: .skip 4
start_timer: .skip 1
finished: .skip 1

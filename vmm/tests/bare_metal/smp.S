# Starting the other CPUs: INIT and start-up IPIs, a 16-bit trampoline into 64-bit mode, locked counters,
# IPIs between CPUs, and a time-stamp counter that never runs backwards from one CPU to the next.
.include "program.inc"

.equ APIC, 0xfee00000
.equ TRAMPOLINE, 0x8000

# R14 holds the local APIC's address throughout.
main:
        mov r14d, APIC
        mov ecx, 0x50
        mov rax, offset ping
        call set_vector
        mov esi, offset trampoline
        mov edi, TRAMPOLINE
        mov ecx, offset trampoline_end - trampoline
        rep movsb
        mov dword ptr [r14 + 0xf0], 0x1ff
        # All but self: INIT, then start-up at page 8.
        mov dword ptr [r14 + 0x300], 0xc4500
        mov dword ptr [r14 + 0x300], 0xc4608
        # Three others, as the test starts it.
        mov ebx, 3
1:      pause
        cmp [started], ebx
        jne 1b
        say "started "
        mov eax, [started]
        call print_hex
        say "\n"

        # Everyone counts; the sum shows whether locked additions were atomic.
        mov dword ptr [go], 1
        call count
1:      pause
        cmp dword ptr [counted], 4
        jne 1b
        say "counted "
        mov rax, [counter]
        call print_hex
        say "\ntime-stamp steps backwards "
        mov rax, [backwards]
        call print_hex
        cmp qword ptr [last_stamp], 0
        je 3f
        say "\nand it runs"
3:
        # A fixed interrupt to each of the others, who halt.
        mov ebx, 1
2:      mov eax, ebx
        shl eax, 24
        mov dword ptr [r14 + 0x310], eax
        mov dword ptr [r14 + 0x300], 0x4050
        inc ebx
        cmp ebx, 4
        jb 2b
1:      pause
        cmp dword ptr [pings], 3
        jne 1b
        say "\nevery CPU answered\n"
        xor eax, eax
        ret

# Adds 1 to the counter ten thousand times, and compares time stamps with the last one seen by any CPU.
count:
        mov ecx, 10000
1:      lock add qword ptr [counter], 1
        call take_lock
        rdtsc
        shl rdx, 32
        or rax, rdx
        cmp rax, [last_stamp]
        jae 2f
        inc qword ptr [backwards]
2:      mov [last_stamp], rax
        mov dword ptr [lock_word], 0
        loop 1b
        lock inc dword ptr [counted]
        ret

take_lock:
        mov eax, 1
        xchg eax, [lock_word]
        test eax, eax
        jz 2f
1:      pause
        cmp dword ptr [lock_word], 0
        jne 1b
        jmp take_lock
2:      ret

ping:
        lock inc dword ptr [pings]
        mov dword ptr [r14 + 0xb0], 0
        iretq

ap_main:
        mov r14d, APIC
        mov ecx, 16
        mov ss, ecx
        mov ds, ecx
        mov es, ecx
        # A stack by APIC id.
        mov eax, [r14 + 0x20]
        shr eax, 24
        shl eax, 12
        lea rsp, [rax + ap_stacks]
        lidt [idt_pointer]
        mov dword ptr [r14 + 0xf0], 0x1ff
        lock inc dword ptr [started]
1:      pause
        cmp dword ptr [go], 1
        jne 1b
        call count
        sti
2:      hlt
        jmp 2b

.code16
trampoline:
        cli
        mov ax, cs
        mov ds, ax
        .byte 0x66
        lgdt [trampoline_gdt_pointer - trampoline]
        mov eax, 0x11
        mov cr0, eax
        .byte 0x66, 0xea
        .long TRAMPOLINE + protected - trampoline
        .word 24
.align 4
trampoline_gdt_pointer:
        .word 31
        .long gdt
.code32
protected:
        mov ax, 16
        mov ds, ax
        mov eax, offset pml4
        mov cr3, eax
        mov eax, 0x620
        mov cr4, eax
        mov ecx, 0xc0000080
        rdmsr
        or eax, 0x900
        wrmsr
        mov eax, 0x80010033
        mov cr0, eax
        .byte 0xea
        .long ap_main
        .word 8
trampoline_end:
.code64

.bss
.align 8
counter:    .skip 8
last_stamp: .skip 8
backwards:  .skip 8
started:    .skip 4
go:         .skip 4
counted:    .skip 4
lock_word:  .skip 4
pings:      .skip 4
.align 4096
        .skip 4096
ap_stacks:  .skip 4 * 4096

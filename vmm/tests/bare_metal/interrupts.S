# Exceptions, software interrupts, the 8259 with the 8254, the local APIC's timer in all three modes, HLT.
.include "program.inc"

.equ APIC, 0xfee00000

# R14 holds the local APIC's address throughout.
main:
        mov r14d, APIC
        mov ecx, 0
        mov rax, offset divide_error
        call set_vector
        mov ecx, 3
        mov rax, offset breakpoint
        call set_vector
        mov ecx, 6
        mov rax, offset invalid_opcode
        call set_vector
        mov ecx, 13
        mov rax, offset general_protection
        call set_vector
        mov ecx, 0x20
        mov rax, offset pit_tick
        call set_vector
        mov ecx, 0x40
        mov rax, offset apic_tick
        call set_vector
        mov ecx, 0x41
        mov rax, offset self_ipi
        call set_vector

        say "exceptions:"
        xor ecx, ecx
        xor edx, edx
        mov eax, 1
        div ecx
        int3
        ud2
        mov rax, 0x800000000000
        mov al, [rax]
        say "\n"

        # 8259s: vectors 0x20 and 0x28, only input 0 open; 8254 channel 0 in mode 2 at about 1 kHz.
        mov al, 0x11
        out 0x20, al
        out 0xa0, al
        mov al, 0x20
        out 0x21, al
        mov al, 0x28
        out 0xa1, al
        mov al, 4
        out 0x21, al
        mov al, 2
        out 0xa1, al
        mov al, 1
        out 0x21, al
        out 0xa1, al
        mov al, 0xfe
        out 0x21, al
        mov al, 0xff
        out 0xa1, al
        mov al, 0x34
        out 0x43, al
        mov al, 0xa9
        out 0x40, al
        mov al, 4
        out 0x40, al
        # The local APIC passes the 8259 on through LINT0.
        mov dword ptr [r14 + 0xf0], 0x1ff
        mov dword ptr [r14 + 0x350], 0x700
        mov ecx, 5
        mov rbx, offset pit_ticks
        call wait_ticks
        mov al, 0xff
        out 0x21, al
        mov dword ptr [r14 + 0x350], 0x10700
        say "five 8254 ticks\n"

        # One-shot: exactly one interrupt.
        mov rbx, offset apic_ticks
        mov dword ptr [r14 + 0x3e0], 0xb
        mov dword ptr [r14 + 0x320], 0x40
        mov dword ptr [r14 + 0x380], 100000
        mov ecx, 1
        call wait_ticks
        cmp dword ptr [r14 + 0x390], 0
        jne fail
        say "one-shot\n"
        # Periodic.
        mov dword ptr [r14 + 0x320], 0x20040
        mov dword ptr [r14 + 0x380], 50000
        mov ecx, 4
        call wait_ticks
        mov dword ptr [r14 + 0x320], 0x10040
        mov dword ptr [r14 + 0x380], 0
        say "periodic\n"
        # TSC deadline.
        mov eax, 1
        cpuid
        bt ecx, 24
        jnc no_deadline
        mov rbx, offset apic_ticks
        mov dword ptr [r14 + 0x320], 0x40040
        mfence
        rdtsc
        shl rdx, 32
        or rax, rdx
        add rax, 1000000
        mov r12, rax
        mov rdx, rax
        shr rdx, 32
        mov ecx, 0x6e0
        wrmsr
        mov ecx, 1
        call wait_ticks
        rdtsc
        shl rdx, 32
        or rax, rdx
        cmp rax, r12
        jb fail
        mov ecx, 0x6e0
        rdmsr
        or eax, edx
        jnz fail
        say "deadline\n"
no_deadline:

        # An interrupt raised while interrupts are off arrives, but not in STI's shadow.
        mov dword ptr [r14 + 0x310], 0
        mov dword ptr [r14 + 0x300], 0x40041
        xor ebp, ebp
        sti
        inc ebp
        nop
        cli
        take_interrupts self_ipis, 1
        cmp dword ptr [self_ipis], 1
        jne fail
        cmp dword ptr [shadow_seen], 1
        jne fail
        # The task priority holds it off; lowering it lets it in.
        mov eax, 5
        mov cr8, rax
        mov dword ptr [r14 + 0x300], 0x40041
        take_interrupts self_ipis, 2
        cmp dword ptr [self_ipis], 1
        jne fail
        xor eax, eax
        mov cr8, rax
        take_interrupts self_ipis, 2
        cmp dword ptr [self_ipis], 2
        jne fail
        say "self IPI, STI shadow, CR8\n"
        xor eax, eax
        ret

fail:
        say "FAIL\n"
        mov eax, 1
        jmp exit

# Halts until the counter at RBX has advanced by ECX.
wait_ticks:
        add ecx, [rbx]
1:      sti
        hlt
        cli
        cmp [rbx], ecx
        jb 1b
        ret

divide_error:
        say " #DE"
        add qword ptr [rsp], 2
        iretq
breakpoint:
        say " #BP"
        iretq
invalid_opcode:
        say " #UD"
        add qword ptr [rsp], 2
        iretq
general_protection:
        say " #GP"
        add rsp, 8
        add qword ptr [rsp], 2
        iretq
pit_tick:
        push rax
        inc dword ptr [pit_ticks]
        mov al, 0x20
        out 0x20, al
        pop rax
        iretq
apic_tick:
        inc dword ptr [apic_ticks]
        mov dword ptr [r14 + 0xb0], 0
        iretq
self_ipi:
        inc dword ptr [self_ipis]
        mov [shadow_seen], ebp
        mov dword ptr [r14 + 0xb0], 0
        iretq

.bss
.align 4
pit_ticks:   .skip 4
apic_ticks:  .skip 4
self_ipis:   .skip 4
shadow_seen: .skip 4

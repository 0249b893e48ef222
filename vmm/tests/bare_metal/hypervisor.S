# A hypervisor's own interface: CPUID leaves, a register that only it has, and calls through a page it writes.
.include "program.inc"
main:
        mov eax, 1
        cpuid
        bt ecx, 31
        setc al
        movzx eax, al
        call print_hex
        say " hypervisor present\n"
        mov eax, 0x40000000
        cpuid
        mov eax, ebx
        call print_hex
        say " its name\n"
        # Where the page with the call is to be.
        mov ecx, 0x40000001
        mov eax, offset call_page
        xor edx, edx
        wrmsr
        rdmsr
        sub eax, offset call_page
        call print_hex
        say " off the page's address\n"
        mov ecx, 5
        mov edx, 7
        mov r8d, 9
        mov eax, offset call_page
        call rax
        call print_hex
        say " from the call\n"
        mov rax, r8
        call print_hex
        say " in R8\n"
        mov ecx, 13
        mov rax, offset refused
        call set_vector
        # Registers that nobody has: Hyper-V's crash control, KVM's clock, and one that no maker has given a number.
        mov ecx, 0x40000105
        call read
        mov ecx, 0x4b564d00
        call read
        mov ecx, 0x12345
        call read
        # A value that the register does not take.
        mov ecx, 0x40000001
        mov eax, 1
        xor edx, edx
        wrmsr
        say "taken\n"
        xor eax, eax
        ret

# Tells whether register ECX can be read.
read:
        mov eax, ecx
        call print_hex
        say " "
        rdmsr
        say "read\n"
        ret

# The register in ECX is refused: on to the next, or, with the one that there is, to the end.
refused:
        say "refused\n"
        pop rax
        pop rax
        cmp ecx, 0x40000001
        je 1f
        # Back to whom `read` was called by.
        mov rsp, [rsp + 16]
        ret
1:      xor eax, eax
        jmp exit

.bss
.align 4096
call_page: .skip 4096

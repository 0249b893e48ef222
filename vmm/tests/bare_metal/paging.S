# Page faults: addresses, error codes, restarting, write protection, no-execute, 4 KiB pages.
.include "program.inc"

# A page directory of the test's own maps 1 GiB at 4 GiB: entry 0 points to a page table, nothing else.
main:
        mov ecx, 14
        mov rax, offset page_fault
        call set_vector
        mov qword ptr [pdpt + 4 * 8], offset test_directory + 7
        mov qword ptr [test_directory], offset test_table + 7
        mov r8, 0x100000000

        say "read not present\n"
        mov rax, [r8 + 0x1008]
        say "write, mapped by the handler and restarted\n"
        mov r15, offset data_page + 3
        mov dword ptr [r8 + 0x2004], 0x12345678
        mov eax, [data_page + 4]
        call print_hex
        say "\naccessed and dirty bits\n"
        mov rax, [test_table + 2 * 8]
        and eax, 0xfff
        call print_hex
        say "\nwrite to read-only\n"
        and byte ptr [test_table + 2 * 8], 0xfd
        invlpg [r8 + 0x2000]
        mov r15, offset data_page + 3
        mov dword ptr [r8 + 0x2008], 1
        say "no-execute\n"
        mov byte ptr [data_page + 16], 0xc3
        bts qword ptr [test_table + 2 * 8], 63
        invlpg [r8 + 0x2000]
        mov r15, offset data_page + 3
        lea rax, [r8 + 0x2010]
        call rax
        say "accesses across a page boundary\n"
        mov qword ptr [test_table + 3 * 8], offset data_page + 0x1003
        mov rax, 0x1122334455667788
        mov [r8 + 0x2ffd], rax
        mov rax, [r8 + 0x2ffd]
        call print_hex
        mov eax, [data_page + 0x1000]
        call print_hex
        say "\n"
        xor eax, eax
        ret

# Prints the error code and the address. R15 non-zero: the new entry of the page; zero: skips the instruction,
# which is `mov rax, [r8 + disp32]`.
page_fault:
        push rax
        push rcx
        say " error "
        mov rax, [rsp + 16]
        call print_hex
        say " at "
        mov rax, cr2
        call print_hex
        say "\n"
        test r15, r15
        jz 1f
        mov rcx, cr2
        shr ecx, 12
        mov [test_table + rcx * 8], r15
        xor r15, r15
        invlpg [r8 + 0x2000]
        jmp 2f
1:      add qword ptr [rsp + 24], 7
2:      pop rcx
        pop rax
        add rsp, 8
        iretq

.bss
.align 4096
test_directory: .skip 4096
test_table:     .skip 4096
data_page:      .skip 8192

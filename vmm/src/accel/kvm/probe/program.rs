//! The program of the probe, and what it leaves in memory.

use nicvisor_memory::GuestRam;
use softcpu::{CpuidEntry, CpuidTable};
use vm_memory::{Bytes, GuestAddress, GuestMemoryError};

/// Puts the program and what it is to ask CPUID for (leaves and subleaves) into memory.
pub(super) fn write(ram: &GuestRam, leaves: &[(u32, u32)]) -> Result<(), GuestMemoryError> {
    ram.write_slice(code(), GuestAddress(START))?;
    for (index, &(leaf, subleaf)) in (0..).zip(leaves.iter().chain([&(END_OF_LEAVES, 0)])) {
        ram.write_obj(u64::from(leaf) | u64::from(subleaf) << 32, GuestAddress(LEAVES + 8 * index))?;
    }
    Ok(())
}

/// What CPUID answered for `leaves`.
pub(super) fn answers(ram: &GuestRam, leaves: &[(u32, u32)]) -> Result<CpuidTable, GuestMemoryError> {
    let mut table = CpuidTable::default();
    for (index, &(leaf, subleaf)) in (0..).zip(leaves) {
        let [eax, ebx, ecx, edx]: [u32; 4] = ram.read_obj(GuestAddress(ANSWERS + 16 * index))?;
        table.entries.push(CpuidEntry { leaf, subleaf: Some(subleaf), eax, ebx, ecx, edx });
    }
    Ok(table)
}

/// Where the program starts.
pub(super) const START: u64 = 0x10_0000;
const LEAVES: u64 = 0x12_4000;
const ANSWERS: u64 = 0x12_5000;
const END_OF_LEAVES: u32 = u32::MAX;

/// The program: position-independent 64-bit code.
fn code() -> &'static [u8] {
    unsafe extern "C" {
        static nicvisor_probe_start: u8;
        static nicvisor_probe_end: u8;
    }
    // SAFETY: the two symbols are the ends of the block of constant bytes below.
    unsafe {
        let (start, end) = (&raw const nicvisor_probe_start, &raw const nicvisor_probe_end);
        std::slice::from_raw_parts(start, end.offset_from(start) as usize)
    }
}

// Uses the 64 KiB from 0x120000 for its interrupt table, stack and data. RBX counts interrupts.
std::arch::global_asm!(
    r#"
    .pushsection .rodata
    .globl nicvisor_probe_start
    .globl nicvisor_probe_end
nicvisor_probe_start:
    cld
    mov rsp, 0x130000
    mov al, 'A'
    call 90f
    // Gates of the page fault, the breakpoint and the interrupt.
    mov edi, 0x120000 + 14 * 16
    lea rax, [rip + 70f]
    call 80f
    mov edi, 0x120000 + 3 * 16
    lea rax, [rip + 71f]
    call 80f
    mov edi, 0x120000 + 0x40 * 16
    lea rax, [rip + 72f]
    call 80f
    mov edi, 0x120000 + 6 * 16
    lea rax, [rip + 73f]
    call 80f
    mov word ptr [0x121000], 0xfff
    mov qword ptr [0x121002], 0x120000
    lidt [0x121000]

    // Beyond the identity map; the handler skips the four bytes of the read.
    mov rsi, 0x100000000
    xor ebx, ebx
    mov rax, [rsi + 0x10]
    cmp ebx, 1
    jne 99f
    mov al, 'P'
    call 90f

    xor eax, eax
    xor edx, edx
    mov [0x121010], rax
    mov [0x121018], rdx
    mov ebx, 5
    mov ecx, 6
    lock cmpxchg16b [0x121010]
    jne 99f
    cmp qword ptr [0x121018], 6
    jne 99f
    mov al, 'C'
    call 90f

    mov rax, cr4
    or eax, 0x600
    mov cr4, rax
    fxsave64 [0x122000]
    fxrstor64 [0x122000]
    mov al, 'F'
    call 90f

    xor ebx, ebx
    int3
    cmp ebx, 1
    jne 99f
    mov al, 'B'
    call 90f

    // An IPI to itself.
    xor ebx, ebx
    mov esi, 0xfee00000
    mov dword ptr [rsi + 0xf0], 0x1ff
    mov dword ptr [rsi + 0x300], 0x40040
    sti
    mov ecx, 10000
20: pause
    test ebx, ebx
    jnz 21f
    loop 20b
    jmp 99f
21: cli
    mov al, 'I'
    call 90f

    // What CPUID says, leaf by leaf.
    mov esi, 0x124000
    mov edi, 0x125000
22: mov eax, [rsi]
    cmp eax, -1
    je 23f
    mov ecx, [rsi + 4]
    cpuid
    mov [rdi], eax
    mov [rdi + 4], ebx
    mov [rdi + 8], ecx
    mov [rdi + 12], edx
    add esi, 8
    add edi, 16
    jmp 22b

23: mov eax, 7
    xor ecx, ecx
    cpuid
    bt ebx, 8
    jnc 30f
    mov ecx, 4
    mov eax, 3
    .byte 0xc4, 0xe2, 0x71, 0xf7, 0xc0 // SHLX EAX, EAX, ECX
    cmp eax, 48
    je 30f
    // Advertised, but an invalid opcode, is a leak too.
    cmp ebx, 0
    jne 99f
    mov al, 'X'
    call 90f
30: mov al, 'M'
    call 90f

    // To user mode and back by a system call; whatever mode that arrives in, UD2 comes back to the kernel.
    mov edi, 0x120000 + 6 * 16
    lea rax, [rip + 74f]
    call 80f
    // User mode may use the first 2 MiB.
    mov rax, cr3
    mov ecx, 3
31: and rax, -4096
    or byte ptr [rax], 4
    mov rax, [rax]
    loop 31b
    mov rax, cr3
    mov cr3, rax
    // Descriptors: kernel code and data, a gap, user data and code, the task state.
    mov rax, 0x00af9b000000ffff
    mov [0x121110], rax
    mov rax, 0x00cf93000000ffff
    mov [0x121118], rax
    mov rax, 0x00cff3000000ffff
    mov [0x121128], rax
    mov rax, 0x00affb000000ffff
    mov [0x121130], rax
    mov rax, 0x0000891212000067
    mov [0x121138], rax
    mov qword ptr [0x121204], 0x12f000
    mov word ptr [0x121300], 0x47
    mov qword ptr [0x121302], 0x121100
    lgdt [0x121300]
    mov eax, 0x38
    ltr ax
    mov ecx, 0xc0000080                 // EFER: SCE
    rdmsr
    or eax, 1
    wrmsr
    inc ecx                             // STAR
    xor eax, eax
    mov edx, 0x00230010
    wrmsr
    inc ecx                             // LSTAR
    lea rax, [rip + 76f]
    xor edx, edx
    wrmsr
    mov ecx, 0xc0000084                 // SFMASK
    mov eax, 0x47700
    wrmsr
    lea rcx, [rip + 75f]
    mov r11d, 2
    .byte 0x48, 0x0f, 0x07              // SYSRETQ
75: syscall
76: mov ecx, cs
    ud2
74: mov esp, 0x130000
    test cl, 3
    jz 32f
    mov al, 'K'
    call 90f
32: mov al, 'U'
    call 90f

    mov al, 'S'
    call 90f
    mov ecx, 25000
40: dec ecx
    jnz 40b
    mov al, 'E'
    call 90f
    xor eax, eax
    mov dx, 0xf4
    out dx, eax
99: mov eax, 1
    mov dx, 0xf4
    out dx, eax
    hlt
    jmp 99b

70: inc ebx
    add rsp, 8
    add qword ptr [rsp], 4
    iretq
71: inc ebx
    iretq
72: inc ebx
    mov dword ptr [rsi + 0xb0], 0
    iretq
73: xor ebx, ebx
    add qword ptr [rsp], 5
    iretq

    // The gate at RDI leads to RAX.
80: mov [rdi], ax
    mov word ptr [rdi + 2], 0x10
    mov word ptr [rdi + 4], 0x8e00
    shr rax, 16
    mov [rdi + 6], ax
    shr rax, 16
    mov [rdi + 8], eax
    mov dword ptr [rdi + 12], 0
    ret

    // AL to the serial port.
90: mov dx, 0x3f8
    out dx, al
    ret
nicvisor_probe_end:
    .popsection
    "#
);

# A gVNIC driver of one queue each way, format DQO-RDA, and one frame there and back: the other end of the link
# returns what it gets, with the addresses exchanged.
.include "program.inc"

.equ APIC, 0xfee00000
.equ ECAM, 0xe0000000
.equ TX_ENTRIES, 256
.equ RX_ENTRIES, 512
.equ BUFFERS, 16
.equ RAW_ADDRESSING, 0xffffffff
.equ FRAME_LENGTH, 64

# R14: local APIC. R13: configuration space. R12: registers. R10: doorbells. R15: admin commands so far.
main:
        mov r14d, APIC
        mov dword ptr [r14 + 0xf0], 0x1ff
        mov ecx, 0x61
        mov rax, offset sent
        call set_vector
        mov ecx, 0x62
        mov rax, offset received
        call set_vector
        call find
        call route_interrupts
        say "device\n"

        # The admin queue by its page number.
        xor r15d, r15d
        mov eax, offset admin_queue
        shr eax, 12
        bswap eax
        mov [r12 + 0x10], eax
        call verify
        call describe
        call configure
        call create_queues
        call post_buffers
        # Interrupts of both blocks on.
        mov eax, [doorbell_indices]
        bswap eax
        mov dword ptr [r10 + rax * 4], 1
        mov eax, [doorbell_indices + 64]
        bswap eax
        mov dword ptr [r10 + rax * 4], 1
        call send

1:      sti
        hlt
        cli
        cmp dword ptr [sent_interrupts], 0
        je 1b
        cmp dword ptr [received_interrupts], 0
        je 1b
        call check_sent
        call check_received
        xor eax, eax
        ret

# 1ae0:0042 on bus 0; memory and bus mastering on.
find:
        mov r13d, ECAM
        mov ecx, 32
1:      cmp dword ptr [r13], 0x00421ae0
        je 2f
        add r13, 0x8000
        loop 1b
        jmp fail
2:      mov word ptr [r13 + 4], 6
        mov r12d, [r13 + 0x10]
        and r12d, -16
        mov r10d, [r13 + 0x18]
        and r10d, -16
        ret

# MSI-X vectors 0 and 1 become interrupts 0x61 and 0x62 of this CPU.
route_interrupts:
        movzx ebx, byte ptr [r13 + 0x34]
1:      test ebx, ebx
        jz fail
        cmp byte ptr [r13 + rbx], 0x11
        je 2f
        movzx ebx, byte ptr [r13 + rbx + 1]
        jmp 1b
2:      mov eax, [r13 + rbx + 4]
        mov ecx, eax
        and ecx, 7
        and eax, -8
        mov esi, [r13 + 0x10 + rcx * 4]
        and esi, -16
        add rsi, rax
        mov ecx, 0x61
3:      mov dword ptr [rsi], APIC
        mov dword ptr [rsi + 4], 0
        mov [rsi + 8], ecx
        mov dword ptr [rsi + 12], 0
        add rsi, 16
        inc ecx
        cmp ecx, 0x62
        jbe 3b
        or word ptr [r13 + rbx + 2], 0x8000
        ret

# Stores big-endian values in the parameters of the command at RDI.
.macro put32 offset, value
        mov eax, \value
        bswap eax
        mov [rdi + 8 + \offset], eax
.endm
.macro put64 offset, value
        mov eax, \value
        bswap rax
        mov [rdi + 8 + \offset], rax
.endm
.macro put16 offset, value
        mov ax, \value
        xchg al, ah
        mov [rdi + 8 + \offset], ax
.endm

# RDI: the next command, cleared, with opcode EAX.
begin:
        mov edi, r15d
        shl edi, 6
        add rdi, offset admin_queue
        push rdi
        push rax
        mov ecx, 16
        xor eax, eax
        rep stosd
        pop rax
        pop rdi
        bswap eax
        mov [rdi], eax
        ret

# Executes the command at RDI.
execute:
        inc r15d
        mov eax, r15d
        bswap eax
        mov [r12 + 0x14], eax
1:      pause
        mov eax, [r12 + 0x18]
        bswap eax
        cmp eax, r15d
        jne 1b
        mov eax, [rdi + 4]
        bswap eax
        cmp eax, 1
        jne fail
        ret

verify:
        mov byte ptr [scratch], 1
        mov rax, 0x7b
        bswap rax
        mov [scratch + 16], rax
        mov eax, 0xf
        call begin
        put64 0, 304
        put64 8, "offset scratch"
        call execute
        say "verified\n"
        ret

describe:
        mov eax, 1
        call begin
        put64 0, "offset scratch"
        put32 8, 1
        put32 12, 4096
        call execute
        movzx eax, word ptr [scratch + 16]
        xchg al, ah
        call print_hex
        say " MTU\n"
        # The source address of the frame.
        mov eax, [scratch + 24]
        mov [frame + 6], eax
        mov ax, [scratch + 28]
        mov [frame + 10], ax
        ret

configure:
        mov eax, 2
        call begin
        put64 0, "offset event_counters"
        put64 8, "offset doorbell_indices"
        put32 16, 1
        put32 20, 2
        put32 24, 64
        mov byte ptr [rdi + 8 + 32], 3
        call execute
        ret

create_queues:
        mov eax, 5
        call begin
        put64 8, "offset scratch"
        put64 16, "offset tx_ring"
        put32 24, RAW_ADDRESSING
        put64 32, "offset tx_completions"
        put16 40, TX_ENTRIES
        put16 42, TX_ENTRIES
        call execute
        mov eax, [scratch]
        bswap eax
        mov [tx_doorbell], eax
        mov eax, 6
        call begin
        put32 12, 1
        put64 16, "offset scratch"
        put64 24, "offset rx_completions"
        put64 32, "offset rx_ring"
        put32 40, RAW_ADDRESSING
        put16 44, RX_ENTRIES
        put16 46, 2048
        put16 48, RX_ENTRIES
        call execute
        mov eax, [scratch]
        bswap eax
        mov [rx_doorbell], eax
        say "queues\n"
        ret

post_buffers:
        mov rdi, offset rx_ring
        mov rax, offset buffers
        xor ecx, ecx
1:      mov [rdi], cx
        mov [rdi + 8], rax
        add rdi, 32
        add rax, 2048
        inc ecx
        cmp ecx, BUFFERS
        jb 1b
        mov eax, [rx_doorbell]
        mov [r10 + rax * 4], ecx
        ret

# A general context descriptor, then the whole frame in one packet descriptor with tag 7.
send:
        mov byte ptr [tx_ring + 8], 4
        mov qword ptr [tx_ring + 16], offset frame
        mov dword ptr [tx_ring + 24], 0x2c
        mov word ptr [tx_ring + 28], 7
        mov word ptr [tx_ring + 30], FRAME_LENGTH
        mov eax, [tx_doorbell]
        mov dword ptr [r10 + rax * 4], 2
        ret

check_sent:
        movzx eax, word ptr [tx_completions + 2]
        call print_hex
        say " sent\n"
        ret

# The first completion is of buffer 0; what came is what was sent, the other way.
check_received:
        movzx eax, word ptr [rx_completions + 4]
        bt eax, 14
        jnc fail
        and eax, 0x3fff
        call print_hex
        say " bytes received\n"
        mov ecx, 6
        mov rsi, offset buffers
        mov rdi, offset frame + 6
        repe cmpsb
        jne fail
        mov ecx, FRAME_LENGTH - 12
        mov rsi, offset buffers + 12
        mov rdi, offset frame + 12
        repe cmpsb
        jne fail
        say "the same as sent\n"
        ret

fail:
        say "FAIL\n"
        mov eax, 1
        jmp exit

sent:
        inc dword ptr [sent_interrupts]
        mov dword ptr [r14 + 0xb0], 0
        iretq
received:
        inc dword ptr [received_interrupts]
        mov dword ptr [r14 + 0xb0], 0
        iretq

.data
.align 16
frame:
        .byte 0x02, 0, 0, 0, 0, 0x99
        .skip 6
        .byte 0x88, 0xb5
        .ascii "one frame there and back, 64 bytes with its header"

.bss
.align 4096
admin_queue:      .skip 4096
scratch:          .skip 4096
event_counters:   .skip 4096
doorbell_indices: .skip 4096
tx_ring:          .skip TX_ENTRIES * 16
tx_completions:   .skip TX_ENTRIES * 8
rx_ring:          .skip RX_ENTRIES * 32
rx_completions:   .skip RX_ENTRIES * 32
buffers:          .skip BUFFERS * 2048
tx_doorbell:         .skip 4
rx_doorbell:         .skip 4
sent_interrupts:     .skip 4
received_interrupts: .skip 4

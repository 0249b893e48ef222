//! Rules about queues, their entries and doorbells.

rules! {
    DOORBELL Error "mana-doorbell"
        "Doorbells are 64-bit writes to places in a doorbell page where there is one"
        "The write has no effect."
        "Linux gdma_main.c: mana_gd_ring_doorbell, DOORBELL_OFFSET_*";
    DOORBELL_RESERVED Error "mana-doorbell-reserved"
        "Reserved bits of a doorbell are 0"
        "The device may take them for something else."
        "Linux gdma.h: union gdma_doorbell_entry";
    DOORBELL_QUEUE Error "mana-doorbell-queue"
        "A doorbell names a queue that exists, is of its kind, and was created for its doorbell page"
        "The write has no effect, or wakes a queue of somebody else."
        "Linux gdma_main.c: mana_gd_ring_doorbell; gdma.h: union gdma_doorbell_entry";
    QUEUE_MEMORY Error "mana-queue-memory"
        "Queues are in memory that the device can reach"
        "The device writes over foreign memory or stops with a bus error."
        "Linux gdma_main.c: mana_gd_create_dma_region";
    WQ_DOORBELL Error "mana-wq-doorbell"
        "A work queue's doorbell counts posted bytes, in basic units, and never runs ahead by more than the queue"
        "The device takes entries that were never written."
        "Linux gdma_main.c: mana_gd_wq_ring_doorbell, mana_gd_wq_avail_space; gdma.h: GDMA_WQE_BU_SIZE";
    WQ_DOORBELL_COUNT Error "mana-wq-doorbell-count"
        "The count in a work queue's doorbell is 0"
        "The device miscounts the queue's entries."
        "Linux gdma_main.c: comment in mana_gd_wq_ring_doorbell";
    WQE_SIZE Error "mana-wqe-size"
        "An entry has at most 512 bytes in a send queue and 256 in a receive queue, and is posted whole"
        "The queue stops."
        "Linux gdma.h: GDMA_MAX_SQE_SIZE, GDMA_MAX_RQE_SIZE";
    WQE_RESERVED Error "mana-wqe-reserved"
        "Reserved bits of an entry's header are 0"
        "The device may take them for something else."
        "Linux gdma.h: struct gdma_wqe; gdma_main.c: mana_gd_write_client_oob";
    WQE_SGL Error "mana-wqe-sgl"
        "An entry has a scatter-gather list, in a send queue of at most 30 elements, and no element of it is empty"
        "The device drops the packet or stops the queue."
        "Linux gdma_main.c: mana_gd_post_work_request; gdma.h: MAX_TX_WQE_SGL_ENTRIES";
    WQE_MEMORY_KEY Error "mana-wqe-memory-key"
        "Scatter-gather lists use the memory key that the queue's device was registered with"
        "The device refuses the access."
        "Linux gdma_main.c: mana_gd_register_device; mana_en.c: mana_add_sge";
    CQ_TAIL Error "mana-cq-tail"
        "A completion queue's doorbell counts consumed entries, modulo eight rounds, and never more than were written"
        "The device takes entries for free that the driver still has to read."
        "Linux gdma_main.c: mana_gd_ring_cq";
    CQ_ARM Error "mana-cq-arm"
        "Only completion queues that are attached to an event queue are armed"
        "The driver waits for an event that never comes."
        "Linux mana.h: GDMA_CQ_NO_EQ";
    CQ_MODERATION Error "mana-cq-moderation"
        "A completion queue's moderation is only changed where the device offers that"
        "The write has no effect."
        "Linux gdma.h: GDMA_PF_CAP_FLAG_1_DYN_INTERRUPT_MODERATION; gdma_main.c: mana_gd_ring_dim";
    CQ_OVERFLOW Error "mana-cq-overflow"
        "A completion queue's doorbell is rung at least once in eight rounds"
        "The device cannot tell whether the queue is empty or full; completions are lost."
        "Linux mana_en.c: comments in mana_poll_tx_cq and mana_cq_handler";
    EQ_TAIL Error "mana-eq-tail"
        "An event queue's doorbell counts consumed entries, modulo eight rounds, and never more than were written"
        "The device takes entries for free that the driver still has to read."
        "Linux gdma_main.c: mana_gd_process_eq_events";
    EQ_OVERFLOW Error "mana-eq-overflow"
        "An event queue is large enough for all events that are not consumed"
        "Events are lost; the driver reports an overflow."
        "Linux gdma.h: comment at struct gdma_queue; gdma_main.c: mana_gd_process_eq_events";
    TX_OOB_SIZE Error "mana-tx-oob-size"
        "Out-of-band data is 8 bytes in the short and 24 bytes in the long format, and the format is one that the vPort allows"
        "The packet is dropped with CQE_TX_INVALID_OOB."
        "Linux mana.h: struct mana_tx_short_oob, struct mana_tx_long_oob; mana_en.c: mana_start_xmit, mana_cfg_vport";
    TX_OOB_RESERVED Error "mana-tx-oob-reserved"
        "Reserved bits of the long out-of-band data are 0"
        "The device may take them for something else."
        "Linux mana.h: struct mana_tx_long_oob";
    TX_VP_OFFSET Error "mana-tx-vp-offset"
        "A packet carries the number of the vPort that its queue was created for"
        "The packet is dropped with CQE_TX_VPORT_IDX_OUT_OF_RANGE."
        "Linux mana_en.c: mana_cfg_vport, mana_start_xmit";
    TX_VSQ_FRAME Error "mana-tx-vsq-frame"
        "A packet carries its send queue's number without the low ten bits"
        "The packet is dropped with CQE_TX_INVALID_OOB."
        "Linux mana.h: struct mana_txq, vsq_frame";
    TX_VCQ_NUM Error "mana-tx-vcq-num"
        "A packet carries the number of its send queue's completion queue"
        "The completion goes to a queue that does not expect it."
        "Linux mana_en.c: mana_start_xmit, vcq_num";
    TX_VPORT Error "mana-tx-vport"
        "Packets are only sent by a vPort that is configured for sending, from queues of the protection domain it was configured with"
        "The packet is dropped with CQE_TX_VPORT_DISABLED."
        "Linux mana_en.c: mana_cfg_vport";
    TX_BUFFER_ADDRESS Error "mana-tx-buffer-address"
        "Packets are in memory that the device can reach"
        "The packet is lost."
        "Linux mana_en.c: mana_map_skb";
    TX_FRAME_SIZE Error "mana-tx-frame-size"
        "A packet that is not to be segmented is no longer than the MTU"
        "The packet is dropped with CQE_TX_MTU_DROP."
        "Linux mana.h: enum mana_cqe_type; mana_en.c: mana_probe_port";
    TX_OUTER_IP Error "mana-tx-outer-ip"
        "An offload says by is_outer_ipv4 or is_outer_ipv6 which IP header the packet starts with"
        "The device looks for the headers in the wrong place."
        "Linux mana_en.c: mana_start_xmit";
    TX_TRANS_OFF Error "mana-tx-trans-off"
        "A TCP offload says by trans_off where the outermost transport header starts"
        "The device changes bytes that are no header."
        "Linux mana.h: trans_off; mana_en.c: mana_start_xmit";
    TX_CHECKSUM_REQUEST Error "mana-tx-checksum-request"
        "A checksum is asked for that the packet has, of one protocol; a packet to be segmented asks for that of TCP"
        "The frame leaves with a wrong checksum."
        "Linux mana_en.c: mana_checksum_info, mana_start_xmit";
    TX_CHECKSUM_SEED Error "mana-tx-checksum-seed"
        "A checksum field that the device is to fill in holds the pseudo header's sum"
        "The frame leaves with a wrong checksum."
        "Linux include/linux/skbuff.h: CHECKSUM_PARTIAL";
    TX_LSO_REQUEST Error "mana-tx-lso-request"
        "A packet to be segmented has a segment size and its headers in the first element of its list, others have neither"
        "The packet is dropped with CQE_TX_INVALID_OOB."
        "Linux gdma_main.c: mana_gd_write_client_oob; mana_en.c: mana_start_xmit";
    TX_LSO_HEADERS Error "mana-tx-lso-headers"
        "A packet to be segmented has just its headers in the first of at least two elements, of as many bytes as last_vbytes says"
        "The packet is dropped, or its headers and payload are mixed up."
        "Linux mana_en.c: comment at mana_fix_skb_head; gdma_main.c: mana_gd_write_client_oob";
    TX_ENCAP Error "mana-tx-encap"
        "A tunnel's out-of-band data says where the frame and the IP header inside are, of which version, and whether TCP has options"
        "The device changes bytes that are no header."
        "Linux mana.h: struct mana_tx_long_oob";
    RX_WQE Error "mana-rx-wqe"
        "An entry of a receive queue has 8 bytes of inline data and asks for nothing that only send queues have"
        "The queue stops."
        "Linux gdma_main.c: mana_gd_post_work_request";
    RX_BUFFER_ADDRESS Error "mana-rx-buffer-address"
        "Receive buffers are in memory that the device can reach"
        "The device writes over foreign memory or stops with a bus error."
        "Linux mana_en.c: mana_fill_rx_oob";
}

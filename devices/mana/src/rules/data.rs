//! Rules about queues, their entries and doorbells.

rules! {
    DOORBELL Error "mana-doorbell"
        "Doorbells are 64-bit writes to places in a doorbell page where there is one"
        "The write has no effect."
        "Linux gdma_main.c: mana_gd_ring_doorbell, DOORBELL_OFFSET_*";
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
        "An entry has a scatter-gather list, and no element of it is empty"
        "The device drops the packet or stops the queue."
        "Linux gdma_main.c: mana_gd_post_work_request";
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
}

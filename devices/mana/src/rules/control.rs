//! Rules about registers, the hardware channel, requests and the objects that they create.

rules! {
    REGISTER_ACCESS Error "mana-register-access"
        "Registers are only read; shared memory is written in aligned words, doorbells in one write of 8 bytes"
        "The write has no effect, or rings a doorbell with half a value."
        "gdma.h: GDMA_REG_*, GDMA_PF_REG_*; shm_channel.c; gdma_main.c: mana_gd_ring_doorbell";
    SHM_OWNERSHIP Error "mana-shm-ownership"
        "Shared memory is written only while the driver owns it"
        "The device takes a message that is half old and half new."
        "shm_channel.c: union smc_proto_hdr, owner_is_pf";
    SHM_MESSAGE Error "mana-shm-message"
        "Shared memory carries a request to establish or destroy the hardware channel, of version 0"
        "The device answers with a failure."
        "shm_channel.c: SMC_MSG_TYPE_*, SMC_MSG_DIRECTION_REQUEST";
    HWC_SETUP Error "mana-hwc-setup"
        "The hardware channel is established once, with queues in memory and a vector of the function"
        "The device writes events over foreign memory, or the driver never hears of them."
        "shm_channel.c: mana_smc_setup_hwc";
    HWC_LEFTOVER Error "mana-hwc-leftover"
        "Everything that was created through the hardware channel is destroyed before the channel is"
        "The device goes on using memory that the driver is about to free."
        "gdma_main.c: mana_gd_remove, mana_gd_cleanup_device";
    HWC_OOB Error "mana-hwc-oob"
        "A request's OOB names the channel's own queues, and on a physical function those of the other side"
        "The request goes astray and times out."
        "hw_channel.c: mana_hwc_post_tx_wqe; hw_channel.h: struct hwc_tx_oob";
    HWC_MESSAGE Error "mana-hwc-message"
        "A request's headers agree with each other and with what the WQE says, and fit the channel's limits"
        "The request fails or times out."
        "gdma.h: struct gdma_req_hdr; hw_channel.c: mana_hwc_send_request";
    HWC_RECEIVE Error "mana-hwc-receive"
        "A receive WQE that the response fits into is posted before the request is"
        "The response is lost, and the request times out."
        "hw_channel.c: mana_hwc_handle_resp, mana_hwc_test_channel";
    REQUEST_UNKNOWN Error "mana-request-unknown"
        "Requests have a type that the device has"
        "The request fails with GDMA_STATUS_CMD_UNSUPPORTED."
        "gdma.h: enum gdma_request_type; mana.h: enum mana_command_code";
    REQUEST_SIZE Error "mana-request-size"
        "A request is as long as its type, version and counts say"
        "The request fails."
        "gdma.h, mana.h: the request structures";
    REQUEST_PARAMETER Error "mana-request-parameter"
        "The parameters of a request are within what the device described"
        "The request fails."
        "gdma.h, mana.h: the request structures";
    REQUEST_ORDER Error "mana-request-order"
        "The version is agreed on first, a device is registered before it is used, a vPort configured before it has queues"
        "The request fails."
        "gdma_main.c: mana_gd_setup; mana_en.c: mana_probe, mana_alloc_queues";
    OBJECT_UNKNOWN Error "mana-object-unknown"
        "A handle or number names an object that exists: it is destroyed once, and not used afterwards"
        "The request fails, or concerns an object that somebody else has created since."
        "gdma.h, mana.h: the destroy requests; mana_en.c: INVALID_MANA_HANDLE";
    OBJECT_IN_USE Error "mana-object-in-use"
        "An object is destroyed after everything that uses it"
        "The device goes on using what the driver is about to free."
        "mana_en.c: mana_dealloc_queues; gdma_main.c: mana_gd_destroy_queue";
    RX_FENCE Note "mana-rx-fence"
        "A receive queue that frames came to is fenced before it is destroyed, unless fences fail"
        "Completions of its frames may still be on their way to memory that the driver frees."
        "mana_en.c: mana_fence_rq, mana_dealloc_queues";
    DEVICE_LEFTOVER Error "mana-device-leftover"
        "No queue of a device exists when it is deregistered"
        "The device goes on reading and writing memory that the driver is about to free."
        "mana_en.c: mana_remove";
    DMA_REGION Error "mana-dma-region"
        "A DMA region's pages are aligned, in memory, and as many as its length takes"
        "The device reads or writes foreign memory."
        "gdma.h: struct gdma_create_dma_region_req, struct gdma_dma_region_add_pages_req";
    QUEUE_SIZE Error "mana-queue-size"
        "A queue's size is a power of two from 4096 bytes on, and its DMA region has that many"
        "The queue cannot be created, or its entries end up behind it."
        "gdma.h: MANA_MIN_QSIZE; gdma_main.c: mana_gd_alloc_memory";
    STEERING Error "mana-steering"
        "Receive steering names receive queue objects of the same vPort, in a table of a power of two"
        "Received frames are lost or reach another port."
        "mana.h: struct mana_cfg_rx_steer_req_v2";
    RESET_LEFTOVER Note "mana-reset-leftover"
        "The driver takes the device apart before it resets it, unless it recovers from an error"
        "Frames inside the device are lost."
        "mana_en.c: mana_dealloc_queues";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn ids_are_unique_and_say_whose_they_are() {
        let ids: BTreeSet<_> = crate::rules::rules().map(|rule| rule.id).collect();
        assert_eq!(ids.len(), crate::rules::rules().count());
        assert!(ids.iter().all(|id| id.starts_with("mana-")));
    }
}

//! Rules about registers, the hardware channel, requests and the objects that they create.

rules! {
    REGISTER_ACCESS Error "mana-register-access"
        "Only registers that the device has are accessed, and only the writable ones written"
        "A read returns nothing of use; a write has no effect, or one that was not intended."
        "Linux include/net/mana/gdma.h: GDMA_REG_*, GDMA_PF_REG_*";
}

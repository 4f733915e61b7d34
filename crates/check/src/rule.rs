//! The rules: number, name, what is wrong, what is expected, what to do. `docs/checker.md` explains
//! each at length, and a test keeps the two in step.

/// Defines the rules and their texts.
macro_rules! rules {
    ($($name:ident = $code:literal $word:literal: $title:literal, $expected:literal,
        $remedy:literal;)*) => {
        /// A rule of verbs that a program can break.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Rule {
            $(#[doc = $title] $name,)*
        }

        impl Rule {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The number: `C001` and so on. It never changes its meaning.
            pub fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// A short name for programs that read findings.
            pub fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// What is wrong, in a line.
            pub fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }

            /// What verbs expect instead.
            pub fn expected(self) -> &'static str {
                match self { $(Self::$name => $expected,)* }
            }

            /// What to do about it.
            pub fn remedy(self) -> &'static str {
                match self { $(Self::$name => $remedy,)* }
            }
        }
    };
}

rules! {
    BufferChanged = "C001" "buffer-changed":
        "the buffer of a send request changed between post and completion",
        "the bytes stay as they were posted until the completion has been polled, since they may \
         be sent, or sent again, at any time until then",
        "poll the completion (of this or a later request of the queue pair) before writing to the \
         buffer, use another buffer meanwhile, or post with IBV_SEND_INLINE";
    CqOverflow = "C002" "cq-overflow":
        "more completions are outstanding than the completion queue holds",
        "every posted request that will complete into a queue, and is not polled yet, has room in \
         it",
        "create the queue with room for all signaled sends and receives that lead to it, or poll \
         before posting more";
    Unsignaled = "C003" "unsignaled-only":
        "the send queue is full of unsignaled requests",
        "at least one request in every queue's length (max_send_wr) is signaled: only its polled \
         completion frees the places of those before it",
        "set IBV_SEND_SIGNALED on every n-th request, n less than max_send_wr, and poll its \
         completion";
    NoGrh = "C004" "no-grh":
        "the address has no GRH",
        "ah_attr.is_global is 1, with grh.dgid and grh.sgid_index: RoCE has no other address",
        "set is_global = 1 and fill grh; a program with an option for the GID index (-x, -g) wants \
         it given";
    BadGid = "C005" "bad-gid":
        "the address names a wrong GID",
        "sgid_index names an entry of the port's GID table, and dgid is the peer's GID of the same \
         address family",
        "look at `crocevia gids` for the index, exchange GIDs with the peer, and use the same \
         family on both sides";
    BadMtu = "C006" "bad-mtu":
        "the path MTU is larger than the port's",
        "path_mtu is at most the active_mtu of ibv_query_port(3), and the same on both sides",
        "take the smaller active_mtu of both ports, or raise the interfaces' MTU";
    MrInUse = "C007" "mr-in-use":
        "a memory region ended while posted requests use it",
        "a region stays registered until the completions of all requests that name its lkey have \
         been polled",
        "poll them, or destroy or reset the queue pair, before ibv_dereg_mr";
    OutsideMr = "C008" "outside-mr":
        "a scatter-gather entry lies outside its memory region",
        "addr to addr + length lies within the region that lkey names",
        "register the whole buffer, or correct addr and length; the request will fail with \
         IBV_WC_LOC_PROT_ERR";
    UnknownLkey = "C009" "unknown-lkey":
        "a scatter-gather entry has an lkey that names no memory region",
        "lkey is that of a live region (mr->lkey, in the host's byte order; not the rkey)",
        "take the lkey from the ibv_mr, and deregister it only after the last use";
    MrRights = "C010" "mr-rights":
        "a memory region cannot be used for this request",
        "the region belongs to the queue's protection domain, and has IBV_ACCESS_LOCAL_WRITE where \
         the device writes (receives, READ, atomics)",
        "register with IBV_ACCESS_LOCAL_WRITE and in the queue pair's own domain";
    AtomicOperand = "C011" "atomic-operand":
        "an atomic names no aligned 8 bytes",
        "the remote address is a multiple of 8, and there is one entry of 8 bytes for the result",
        "align the remote variable to 8 bytes and give one entry of length 8";
    Overlap = "C012" "receive-overlap":
        "buffers that the device writes overlap",
        "the buffers of receives, READs and atomics in flight are apart: what is written first is \
         overwritten before the program has seen it",
        "give each request a buffer of its own; look at the distance between them (for datagrams \
         40 bytes more than the message)";
    InlineTooLong = "C013" "inline-too-long":
        "inline data are longer than the queue pair takes",
        "the sum of the lengths is at most the max_inline_data that ibv_create_qp(3) granted",
        "ask for more at creation, or post without IBV_SEND_INLINE above that length";
    WrongTransition = "C014" "wrong-transition":
        "the queue pair was moved in the wrong order",
        "RESET, INIT, RTR, RTS, one after the other; RESET and ERR from anywhere",
        "do the steps in this order, and look at the result of each";
    WrongAttributes = "C015" "wrong-attributes":
        "attributes are missing, superfluous or out of range in a move of a queue pair",
        "attr_mask names all that the move requires, and nothing that it does not take: see the \
         table in ibv_modify_qp(3)",
        "correct the mask; RC needs IBV_QP_MAX_DEST_RD_ATOMIC and IBV_QP_MIN_RNR_TIMER for RTR, \
         IBV_QP_TIMEOUT and its kin for RTS, UC and UD take neither";
    EarlyReceive = "C016" "early-receive":
        "a receive was posted before the queue pair takes one",
        "receives are posted from INIT on",
        "move the queue pair to INIT first";
    EarlySend = "C017" "early-send":
        "a send was posted before the queue pair takes one",
        "sends are posted from RTS on",
        "move the queue pair to RTS first";
    Leak = "C018" "leak":
        "an object was not destroyed",
        "what was created is destroyed before the process ends: queue pairs, then queues, regions, \
         domains, then the device",
        "call its ibv_destroy, ibv_dealloc, ibv_dereg or ibv_close function";
    Unacknowledged = "C019" "unacknowledged-event":
        "events were taken and not acknowledged",
        "every event of ibv_get_cq_event(3) and ibv_get_async_event(3) is acknowledged; destroying \
         its object waits for that, for ever if need be",
        "call ibv_ack_cq_events or ibv_ack_async_event, before destroying the object";
    DeadHandle = "C020" "dead-handle":
        "a handle was used after its object was destroyed",
        "nothing names an object any more when its destroy call has been made",
        "look for a second destroy, for a copy of the pointer, for another thread still at work";
    Busy = "C021" "busy":
        "an object was destroyed before those that use it",
        "queue pairs go before their queues and domains, windows before regions, completion queues \
         before channels; else the call fails with EBUSY and the object stays",
        "destroy in the reverse order of creation, and look at the results";
    NoReceive = "C022" "no-receive":
        "the peer had no receive posted",
        "a SEND, or a WRITE with immediate data, finds a receive at the peer (or finds one within \
         rnr_retry tries of min_rnr_timer)",
        "post receives before the peer sends and keep count (credits), or set rnr_retry = 7 \
         (without limit)";
    ListTooLong = "C023" "list-too-long":
        "a list of work requests is longer than the queue",
        "a list fits into the queue that it is posted to: this one never can",
        "post it in parts, or ask for a deeper queue (max_send_wr, max_recv_wr, max_wr)";
    NeverWakes = "C024" "never-wakes":
        "an event is waited for that nothing will raise",
        "a completion queue of the channel is armed (ibv_req_notify_cq) before the wait, again \
         after each event",
        "arm, poll once more, then wait";
    TooManyPieces = "C025" "too-many-sges":
        "a work request has more scatter-gather entries than the queue takes",
        "num_sge is at most max_send_sge or max_recv_sge as granted",
        "ask for more at creation, or gather the pieces";
    WrongOperation = "C026" "wrong-operation":
        "the queue pair's service does not have this operation",
        "RC: all. UC: SEND, WRITE. UD: SEND, with an address handle and at most the path MTU. No \
         READ or atomic inline",
        "use a service that has the operation";
    SharedBuffer = "C101" "shared-buffer":
        "buffers in flight share bytes, and the device writes one of them",
        "a buffer that the device writes is named by one request at a time",
        "give each request a buffer of its own; benchmarks share one on purpose";
    ResultUnaligned = "C102" "result-unaligned":
        "the result of an atomic goes to an address that is no multiple of 8",
        "the result buffer is aligned, since some adapters demand it",
        "align it to 8 bytes";
}

impl Rule {
    /// Whether the rule is looked at only when asked for.
    pub fn is_strict(self) -> bool {
        matches!(self, Self::SharedBuffer | Self::ResultUnaligned)
    }
}

#[cfg(test)]
mod tests {
    use super::Rule;

    #[test]
    fn numbers_ascend_and_names_differ() {
        for pair in Rule::ALL.windows(2) {
            assert!(pair[0].code() < pair[1].code(), "{pair:?}");
        }
        let mut words: Vec<_> = Rule::ALL.iter().map(|rule| rule.word()).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Rule::ALL.len());
        for rule in Rule::ALL {
            assert_eq!(rule.is_strict(), rule.code() > "C100", "{rule:?}");
        }
    }
}

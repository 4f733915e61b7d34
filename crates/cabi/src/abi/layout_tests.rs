//! Asks the C compiler, with the installed `infiniband/verbs.h`, where the fields lie.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use super::{attr, context, kern, object, work};

/// What C calls a field; `None` where the headers of version 44 do not have it.
fn c_name(structure: &str, field: &'static str) -> Option<&'static str> {
    Some(match (structure, field) {
        ("ibv_mw", "kind") => "type",
        ("ibv_send_wr", "remote_srqn") => "qp_type",
        ("ibv_send_wr", "tail") => "bind_mw",
        ("ibv_device_attr_ex", "max_cq_count") => "cq_mod_caps",
        ("ibv_odp_caps", "rc_odp_caps") => "per_transport_caps",
        ("ibv_qp_init_attr_ex", "rx_hash_function") => "rx_hash_conf",
        ("ibv_qp_init_attr_ex", "rx_hash_key") => "rx_hash_conf.rx_hash_key",
        ("ibv_modify_cq_attr", "cq_count") => "moderate",
        ("ibv_modify_cq_attr", "cq_period") => "moderate.cq_period",
        ("ibv_context_ops", "query_port") => "_compat_query_port",
        ("ib_uverbs_ah_attr", "sgid_index") => "grh.sgid_index",
        ("ibv_port_attr", "active_speed_ex") | ("ibv_qp_ex", "wr_flush") => return None,
        _ => field,
    })
}

/// What C calls an operation of `struct verbs_context`, or the first of a group of them.
fn c_op(field: &'static str) -> Option<&'static str> {
    Some(match field {
        "work_queues" => "destroy_rwq_ind_table",
        "device_memory" => "reg_dm_mr",
        "flow_actions" => "modify_flow_action_esp",
        "counters" => "read_counters",
        "create_flow" => "ibv_create_flow",
        "destroy_flow" => "ibv_destroy_flow",
        "private" => "priv",
        "since_59" => return None,
        _ => field,
    })
}

/// Structures whose size depends on the version of the headers, with the sizes there have been.
const GREW: &[(&str, &[usize])] = &[("ibv_port_attr", &[52, 56]), ("ibv_qp_ex", &[352, 360])];

fn probe() -> String {
    let mut c = String::from(
        "#include <stddef.h>\n#include <infiniband/verbs.h>\n#include <infiniband/sa.h>\n\
         #include <rdma/ib_user_verbs.h>\n#include <rdma/ib_user_sa.h>\n\
         #define OFF(t, f, n) _Static_assert(offsetof(struct t, f) == n, #t \".\" #f)\n\
         #define SIZE(t, n) _Static_assert(sizeof(struct t) == n, #t)\n\
         #define EITHER(t, n, m) _Static_assert(sizeof(struct t) == n \\\n\
         || sizeof(struct t) == m, #t)\n\
         #define BEFORE(f, n) _Static_assert(offsetof(struct verbs_context, context) - \\\n\
         offsetof(struct verbs_context, f) == n, #f)\n",
    );
    let lists = [
        object::OBJECTS,
        object::OBJECTS_WITH_MUTEX,
        work::WORK,
        attr::ATTRIBUTES,
        kern::KERNEL,
        context::OPS,
        context::CONTEXT,
    ];
    for (structure, size, fields) in lists.into_iter().flatten() {
        let line = match GREW.iter().find(|(name, _)| name == structure) {
            Some((_, sizes)) => format!("EITHER({structure}, {}, {});", sizes[0], sizes[1]),
            None => format!("SIZE({structure}, {size});"),
        };
        writeln!(c, "{line}").expect("a string");
        for (field, offset) in *fields {
            if let Some(name) = c_name(structure, field) {
                writeln!(c, "OFF({structure}, {name}, {offset});").expect("a string");
            }
        }
    }
    for (field, offset) in context::BEFORE_CONTEXT {
        if let Some(name) = c_op(field) {
            writeln!(c, "BEFORE({name}, {offset});").expect("a string");
        }
    }
    c
}

#[test]
fn layouts_are_those_of_the_installed_headers() {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        eprintln!("skipped: libibverbs-dev is not installed");
        return;
    }
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("skipped: there is no C compiler");
        return;
    }
    let dir = std::env::temp_dir().join(format!("crocevia-layout-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a temporary directory");
    let source = dir.join("probe.c");
    std::fs::write(&source, probe()).expect("the temporary directory is writable");
    let out = Command::new("cc")
        .args(["-fsyntax-only", "-std=gnu11"])
        .arg(&source)
        .output()
        .expect("the C compiler runs");
    std::fs::remove_dir_all(&dir).expect("the temporary directory is ours");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

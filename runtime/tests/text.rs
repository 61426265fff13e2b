//! Strings and sequences of a model, through the Rust and the C interface.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use common::*;
use hone_artifact::{
    DataType, Host, HostFunction, HostTensor, HostType, Interface, Manifest, Member, MemberForm,
    Part, Slot, TensorInfo, TextFunction,
};
use hone_runtime::capi::*;
use hone_runtime::capi_text::*;
use hone_runtime::{Model, Options, RunError};

/// `y` is a sequence `x` of two tensors of two strings, joined; the model stores the string `known`.
fn joined() -> Manifest {
    let mut manifest = affine(1);
    let tensor = |name: &str| TensorInfo::new(name, DataType::U64, vec![2]).unwrap();
    manifest.inputs = vec![tensor("x[0]"), tensor("x[1]")];
    manifest.outputs = vec![tensor("y")];
    let member = |name: &str, form| Member { name: name.into(), form, text: true };
    manifest.interface = Interface {
        inputs: vec![member("x", MemberForm::Sequence(2))],
        outputs: vec![member("y", MemberForm::Tensor)],
        texts: vec!["known".into()],
    };
    let operand = |slot| HostTensor { slot, of: HostType { dtype: DataType::U64, shape: vec![2] } };
    let input = |index| Some(operand(Slot::Input { index, offset: 0 }));
    let variant = &mut manifest.variants[0];
    variant.steps.clear();
    variant.program = vec![Part::Host(Host {
        node: "join".into(),
        function: HostFunction::Text(TextFunction::Concat),
        inputs: vec![input(0), input(1)],
        outputs: vec![operand(Slot::Output { index: 0, offset: 0 })],
    })];
    manifest
}

fn bytes(handles: [u64; 2]) -> Vec<u8> {
    handles.iter().flat_map(|handle| handle.to_ne_bytes()).collect()
}

fn handles(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|eight| u64::from_ne_bytes(eight.try_into().unwrap())).collect()
}

#[test]
fn strings_come_in_and_go_out_by_their_handles() {
    let mut model = Model::load_memory(pack(&joined()), &Options::default()).unwrap();
    let members = model.members(false);
    assert_eq!((members.len(), members[0].1.clone()), (1, 0..2));
    assert_eq!(model.text_tensors(false), [true, true]);
    let mut text = |text: &str| model.text_handle(text).unwrap();
    let first = bytes([text("known"), text("né")]);
    let second = bytes([text(""), text("\0b")]);
    let mut y = vec![0; 16];
    model.run(&[&first, &second], &mut [&mut y]).unwrap();
    let said: Vec<&str> =
        handles(&y).into_iter().map(|handle| model.text(handle).unwrap()).collect();
    assert_eq!(said, ["known", "né\0b"]);
    model.clear_texts();
    assert_eq!(model.text(handles(&y)[1]), None);
    assert_eq!(model.text(handles(&y)[0]), Some("known"));
    // Another model over the same code knows what the artifact stores, and nothing else.
    let mut other = model.share().unwrap();
    let error = other.run(&[&first, &second], &mut [&mut y]).unwrap_err();
    assert!(matches!(&error, RunError::Host { node, .. } if node == "join"), "{error}");
}

#[test]
fn the_c_interface_has_members_and_strings() {
    let artifact = pack(&joined());
    // SAFETY: the artifact outlives the model; all pointers lead to what the functions ask for.
    unsafe {
        let model = hone_load_memory(artifact.as_ptr().cast(), artifact.len(), ptr::null());
        assert!(!model.is_null());
        assert!(!hone_input_member(model, 0).is_null() && hone_input_member(model, 1).is_null());
        let mut handle = [0u64; 4];
        for (text, handle) in ["a", "b", "known", ""].iter().zip(&mut handle) {
            assert_eq!(hone_text_handle(model, text.as_ptr().cast(), text.len(), handle), 0);
        }
        let mut y = [0u64; 2];
        let inputs: [*const c_void; 2] = [handle.as_ptr().cast(), handle[2..].as_ptr().cast()];
        let outputs: [*mut c_void; 1] = [y.as_mut_ptr().cast()];
        assert_eq!(hone_run(model, inputs.as_ptr(), outputs.as_ptr()), 0);
        let (mut text, mut length): (*const c_char, usize) = (ptr::null(), 0);
        assert_eq!(hone_text(model, y[0], &raw mut text, &raw mut length), 0);
        assert_eq!(std::slice::from_raw_parts(text.cast::<u8>(), length), b"aknown");
        assert_eq!(hone_text(model, 12345, &raw mut text, &raw mut length), -1);
        let wrong = hone_text_handle(model, b"\xff".as_ptr().cast(), 1, &raw mut handle[0]);
        let said = CStr::from_ptr(hone_last_error()).to_str().unwrap();
        assert!(wrong == -1 && said.contains("not UTF-8"), "{said}");
        assert_eq!(hone_clear_texts(model), 0);
        assert_eq!(hone_text(model, y[0], &raw mut text, &raw mut length), -1);
        hone_free(model);
    }
}

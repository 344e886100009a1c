// The all_reduce of the group that DDP's reducer is given, see distdbg/torch_bridge/tap/reducing.py.
#include "attributes.hpp"
#include "torch_keys.hpp"

namespace distdbg {

namespace {

// Attributes of the objects of distdbg/torch_bridge and of torch's tensors, each name made once.
struct Names {
  PyObject* const comm = intern("comm");
  PyObject* const dtype = intern("dtype");
  PyObject* const expects = intern("expects");
  PyObject* const is_first = intern("is_first");
  PyObject* const known = intern("known");
  PyObject* const lane = intern("lane");
  PyObject* const launch = intern("launch");
  PyObject* const next = intern("next");
  PyObject* const numel = intern("numel");
  PyObject* const was_started = intern("was_started");
};

const Names& names() {
  static const Names all;
  return all;
}

// The all_reduce of the group that DDP's reducer is given (tap/reducing.py), as it is called from C++: a bucket that
// comes when and as it is expected takes the short way without a frame of Python. All else takes the `long_way`, as
// if this were not here.
class ReducerOp {
 public:
  // `lanes` by group of torch's, and the models that are `armed`, see training/ddp.py; `learn(model, lane, tensor)` fills
  // in what is known of the bucket that a model expects. `key` is that of our kernels.
  ReducerOp(nb::object theirs, nb::dict lanes, nb::list armed, nb::object learn, nb::object start,
            nb::object long_way, nb::object key)
      : theirs_(std::move(theirs)),
        lanes_(std::move(lanes)),
        armed_(std::move(armed)),
        learn_(std::move(learn)),
        start_(std::move(start)),
        long_way_(std::move(long_way)),
        keys_(std::move(key)) {}

  nb::object operator()(nb::handle tensors, nb::handle options) const {
    nb::object found = expected(tensors, options);
    return found.is_valid() ? found : long_way_(tensors, options);
  }

 private:
  // Invalid: nothing has begun.
  nb::object expected(nb::handle tensors, nb::handle options) const {
    const Names& n = names();
    if (armed_.size() != 1 || !PyList_CheckExact(tensors.ptr()) || nb::len(tensors) != 1) return {};
    const nb::handle lane = PyDict_GetItemWithError(lanes_.ptr(), theirs_.ptr());
    if (!lane.is_valid()) {
      if (PyErr_Occurred() != nullptr) nb::raise_python_error();
      return {};
    }
    if (keys_.are_in_use()) return {};
    const nb::handle tensor = PyList_GetItem(tensors.ptr(), 0);
    const nb::object model = armed_[0];
    nb::object bucket = get(model, n.expects);
    if (bucket.is_none()) return {};
    if (!is_known(bucket, lane, tensor)) {
      bucket = learn_(model, lane, tensor);
      if (bucket.is_none()) return {};
    }
    const nb::tuple arguments = nb::make_tuple(theirs_, tensors, options);
    const bool was_started = get(bucket, n.was_started).is(nb::handle(Py_True));
    const bool is_foreseen = was_started && get(bucket, n.is_first).is(nb::handle(Py_False));
    nb::object work;
    {
      const TorchKeys::Excluded below(keys_);
      work = get(lane, n.launch)(lane, get(bucket, n.known), true, -1, false, get(bucket, n.comm),
                                 start_, arguments, is_foreseen);
    }
    if (work.is(nb::handle(Py_NotImplemented))) return {};
    if (!was_started) set(bucket, n.was_started, nb::handle(Py_True));
    set(model, n.expects, get(bucket, n.next));
    return work;
  }

  static bool is_known(nb::handle bucket, nb::handle lane, nb::handle tensor) {
    const Names& n = names();
    return get(bucket, n.lane).is(lane) && get(bucket, n.dtype).is(get(tensor, n.dtype)) &&
           get(bucket, n.numel).equal(call(tensor, n.numel));
  }

  const nb::object theirs_;
  const nb::dict lanes_;
  const nb::list armed_;
  const nb::object learn_;
  const nb::object start_;
  const nb::object long_way_;
  const TorchKeys keys_;
};

}  // namespace

void bind_reducer(nb::module_& module) {
  nb::class_<ReducerOp>(module, "ReducerOp",
                        "The all_reduce of the group that DDP's reducer is given.")
      .def(nb::init<nb::object, nb::dict, nb::list, nb::object, nb::object, nb::object,
                    nb::object>(),
           nb::arg("theirs"), nb::arg("lanes"), nb::arg("armed"), nb::arg("learn"),
           nb::arg("start"), nb::arg("long_way"), nb::arg("key"))
      .def("__call__", &ReducerOp::operator(), nb::arg("tensors"), nb::arg("options"));
}

}  // namespace distdbg

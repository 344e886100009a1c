// The all_reduce of the group that DDP's reducer is given, see distdbg/torch_bridge/tap/reducing.py.
#include <nanobind/stl/string.h>

#include <string>

#include "tap_ops.hpp"
#include "torch_keys.hpp"

namespace distdbg {

namespace {

// Attributes of the objects of distdbg/torch_bridge and of torch's tensors, each name made once.
struct Names {
  PyObject* const dtype = intern("dtype");
  PyObject* const expects = intern("expects");
  PyObject* const known = intern("known");
  PyObject* const next = intern("next");
  PyObject* const numel = intern("numel");
};

const Names& names() {
  static const Names all;
  return all;
}

// What is known of a bucket since it was first expected.
struct KnownBucket {
  KnownBucket(nb::object lane, nb::object look, nb::object dtype, std::int64_t numel,
              std::string comm, bool is_first, bool is_on_cpu)
      : lane(std::move(lane)),
        ops_object(this->lane.attr("ops")),
        ops(nb::cast<TappedOps&>(ops_object)),
        look(std::move(look)),
        dtype(std::move(dtype)),
        numel(numel),
        comm(std::move(comm)),
        is_first(is_first),
        is_on_cpu(is_on_cpu) {}

  bool is_of(nb::handle of_lane, nb::handle tensor) const {
    return lane.is(of_lane) && get(tensor, names().dtype).is(dtype) &&
           PyLong_AsLongLong(call(tensor, names().numel).ptr()) == numel;
  }

  const nb::object lane;  // where its ops run
  const nb::object ops_object;
  TappedOps& ops;
  const nb::object look;  // what they have in common
  const nb::object dtype;
  const std::int64_t numel;
  const std::string comm;  // what they are called
  const bool is_first;     // a pass begins with it
  const bool is_on_cpu;
  bool was_started = false;  // when it was expected, so that ranks agreed on it here once
};

// As it is called from C++: a bucket that comes when and as it is expected takes the short way without a frame of
// Python. All else takes the `long_way`, as if this were not here.
class ReducerOp {
 public:
  // `lanes` by group of torch's, and the models that are `armed`, see training/ddp.py; `learn(model, lane, tensor)` fills
  // in what is known of the bucket that the `model` of this reducer expects, once there is one. `start` is torch's way to its backend. `start_below` is the
  // backend's own, for a CPU's tensors: past the dispatcher, which has nobody to show the op to while neither
  // `profiler` (the names of its module) nor `observers` say so. `key` is that of our kernels.
  ReducerOp(nb::object theirs, nb::dict lanes, nb::list armed, nb::object learn, nb::object start,
            nb::object start_below, nb::object long_way, nb::dict profiler, nb::list observers,
            nb::object key)
      : theirs_(std::move(theirs)),
        lanes_(std::move(lanes)),
        armed_(std::move(armed)),
        learn_(std::move(learn)),
        start_(std::move(start)),
        start_below_(std::move(start_below)),
        long_way_(std::move(long_way)),
        profiler_(std::move(profiler)),
        observers_(std::move(observers)),
        keys_(std::move(key)) {}

  nb::object operator()(nb::handle tensors, nb::handle options) const {
    nb::object found = expected(tensors, options);
    return found.is_valid() ? found : long_way_(model, theirs_, tensors, options);
  }

  nb::object model = nb::none();

 private:
  // Invalid: nothing has begun.
  nb::object expected(nb::handle tensors, nb::handle options) const {
    const Names& n = names();
    if (!is_armed() || !PyList_CheckExact(tensors.ptr()) || PyList_Size(tensors.ptr()) != 1)
      return {};
    const nb::handle lane = PyDict_GetItemWithError(lanes_.ptr(), theirs_.ptr());
    if (!lane.is_valid()) {
      if (PyErr_Occurred() != nullptr) nb::raise_python_error();
      return {};
    }
    if (keys_.are_traced()) return {};
    const nb::handle tensor = PyList_GetItem(tensors.ptr(), 0);
    const nb::object bucket = get(model, n.expects);
    if (bucket.is_none()) return {};
    nb::object known_object = get(bucket, n.known);
    if (known_object.is_none() || !nb::cast<KnownBucket&>(known_object).is_of(lane, tensor)) {
      known_object = learn_(model, lane, tensor);
      if (known_object.is_none()) return {};
    }
    KnownBucket& known = nb::cast<KnownBucket&>(known_object);
    const nb::object work = launch(known, tensors, options);
    if (!work.is_valid() || work.is(nb::handle(Py_NotImplemented))) return {};
    known.was_started = true;
    set(model, n.expects, get(bucket, n.next));
    return work;
  }

  bool is_armed() const {
    for (Py_ssize_t i = 0; i < PyList_Size(armed_.ptr()); ++i)
      if (PyList_GetItem(armed_.ptr(), i) == model.ptr()) return true;
    return false;
  }

  nb::object launch(KnownBucket& known, nb::handle tensors, nb::handle options) const {
    // The buckets of several models may follow each other in another order than before.
    const bool is_foreseen = known.was_started && !known.is_first && PyList_Size(armed_.ptr()) == 1;
    const auto begin = [&](nb::handle start, const nb::tuple& arguments) {
      return known.ops.launch(known.lane, known.look, true, -1, false, known.comm, start, arguments,
                              is_foreseen);
    };
    if (known.is_on_cpu && !is_shown())
      return begin(start_below_, nb::make_tuple(tensors, options));
    if (keys_.are_in_use()) return {};
    const TorchKeys::Excluded below(keys_);
    return begin(start_, nb::make_tuple(theirs_, tensors, options));
  }

  bool is_shown() const {
    static PyObject* const is_enabled = intern("_is_profiler_enabled");
    return PyDict_GetItem(profiler_.ptr(), is_enabled) != Py_False ||
           PyList_Size(observers_.ptr()) != 0;
  }

  const nb::object theirs_;
  const nb::dict lanes_;
  const nb::list armed_;
  const nb::object learn_;
  const nb::object start_;
  const nb::object start_below_;
  const nb::object long_way_;
  const nb::dict profiler_;
  const nb::list observers_;
  const TorchKeys keys_;
};

}  // namespace

void bind_reducer(nb::module_& module) {
  nb::class_<KnownBucket>(module, "KnownBucket", "A bucket of DDP's that was expected before.")
      .def(nb::init<nb::object, nb::object, nb::object, std::int64_t, std::string, bool, bool>(),
           nb::arg("lane"), nb::arg("look"), nb::arg("dtype"), nb::arg("numel"), nb::arg("comm"),
           nb::arg("is_first"), nb::arg("is_on_cpu"));

  nb::class_<ReducerOp>(module, "ReducerOp",
                        "The all_reduce of the group that DDP's reducer is given.")
      .def(nb::init<nb::object, nb::dict, nb::list, nb::object, nb::object, nb::object, nb::object,
                    nb::dict, nb::list, nb::object>(),
           nb::arg("theirs"), nb::arg("lanes"), nb::arg("armed"), nb::arg("learn"),
           nb::arg("start"), nb::arg("start_below"), nb::arg("long_way"), nb::arg("profiler"),
           nb::arg("observers"), nb::arg("key"))
      .def_rw("model", &ReducerOp::model, "Whose buckets they are; None: it is not known yet.")
      .def("__call__", &ReducerOp::operator(), nb::arg("tensors"), nb::arg("options"));
}

}  // namespace distdbg

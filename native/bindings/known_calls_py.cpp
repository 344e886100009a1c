// Known calls as Python sees them, and what a look is made of; see known_calls.hpp.
#include <dlfcn.h>

#include <algorithm>

#include "begun_op.hpp"
#include "fast_method.hpp"
#include "known_calls.hpp"

namespace distdbg {

namespace {

// The beginning of an array object of NumPy: PyArrayObject_fields of its C API.
struct NumpyArray {
  PyObject head;
  char* data;
  int dimension_count;
  Py_ssize_t* dimensions;
  Py_ssize_t* strides;
  PyObject* base;
  PyObject* dtype;
  int flags;
};
constexpr int c_contiguous = 0x1;
constexpr int writable = 0x400;
constexpr int read_flags = c_contiguous | writable | 0x100 /* aligned */ | 0x2000 /* copied back */;

// Of an asynchronous op: a larger one is worth a thread that begins with it at once.
constexpr std::uint64_t most_started_nbytes = 256 * 1024;

const NumpyArray& fields_of(PyObject* array) { return *reinterpret_cast<NumpyArray*>(array); }

nb::object ask(PyObject* of, const char* name) { return owned(PyObject_GetAttrString(of, name)); }

PyTypeObject* numpy_array_type() {
  static PyObject* const type =
      nb::object(nb::module_::import_("numpy").attr("ndarray")).release().ptr();
  return reinterpret_cast<PyTypeObject*>(type);
}

}  // namespace

bool ArrayReader::has_known_layout(PyObject* array) {
  layout_ = Layout::other;
  const nb::object type = nb::borrow(reinterpret_cast<PyObject*>(Py_TYPE(array)));
  if (nb::cast<std::size_t>(type.attr("__basicsize__")) < sizeof(NumpyArray)) return false;
  const NumpyArray& fields = fields_of(array);
  const nb::object interface = ask(array, "__array_interface__");
  const nb::tuple shape = nb::borrow<nb::tuple>(ask(array, "shape"));
  const auto address = nb::cast<std::uintptr_t>(interface["data"][0]);
  if (reinterpret_cast<std::uintptr_t>(fields.data) != address ||
      ask(array, "dtype").ptr() != fields.dtype ||
      nb::cast<int>(ask(array, "flags").attr("num")) != fields.flags ||
      static_cast<std::size_t>(fields.dimension_count) != shape.size())
    return false;
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (nb::cast<Py_ssize_t>(shape[i]) != fields.dimensions[i]) return false;
  layout_ = Layout::known;
  return true;
}

std::uint64_t ArrayReader::item_nbytes(PyObject* dtype) {
  for (const Item& item : items_)
    if (item.dtype.ptr() == dtype) return item.nbytes;
  if (items_.size() >= 64) items_.clear();
  const auto nbytes = nb::cast<std::uint64_t>(ask(dtype, "itemsize"));
  items_.push_back({nb::borrow(dtype), nbytes});
  return nbytes;
}

bool ArrayReader::read_numpy(PyObject* array, Likeness& look, Memory& memory) {
  if (layout_ != Layout::known && (layout_ == Layout::other || !has_known_layout(array)))
      [[unlikely]]
    return false;
  const NumpyArray& fields = fields_of(array);
  if ((fields.flags & c_contiguous) == 0) return false;
  const auto count = static_cast<std::uint32_t>(fields.dimension_count);
  if (!look.add(fields.dtype) ||
      !look.add(std::uint64_t{count} << 32 | static_cast<std::uint32_t>(fields.flags & read_flags)))
    return false;
  memory.nbytes = item_nbytes(fields.dtype);
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto extent = static_cast<std::uint64_t>(fields.dimensions[i]);
    // No product overflows: the array is there, or one of its extents is 0.
    memory.nbytes *= extent;
    if (!look.add(extent)) return false;
  }
  memory.data = reinterpret_cast<std::byte*>(fields.data);
  return true;
}

void ArrayReader::add_torch_dtype(nb::handle dtype) {
  for (const nb::object& each : torch_dtypes_)
    if (each.is(dtype)) return;
  torch_dtypes_.push_back(nb::borrow(dtype));
}

bool ArrayReader::read(nb::handle array, Likeness& look, Memory& memory) {
  if (Py_TYPE(array.ptr()) == numpy_array_type()) return read_numpy(array.ptr(), look, memory);
  if (reinterpret_cast<PyObject*>(Py_TYPE(array.ptr())) != tensor_.ptr()) return false;
  static PyObject* const dtype = intern("dtype");
  static PyObject* const requires_grad = intern("requires_grad");
  static PyObject* const numpy = intern("numpy");
  const nb::object kind = get(array, dtype);
  const auto is_same = [&](const nb::object& each) { return each.is(kind); };
  if (std::ranges::none_of(torch_dtypes_, is_same)) return false;
  if (!get(array, requires_grad).is(nb::handle(Py_False))) return false;
  PyObject* arguments[] = {array.ptr()};
  PyObject* const made = PyObject_VectorcallMethod(numpy, arguments, 1, nullptr);
  if (made == nullptr) {  // on a device, sparse, conjugated: nothing to be known
    PyErr_Clear();
    return false;
  }
  memory.kept = nb::steal(made);
  return look.add(tensor_.ptr()) && read_numpy(made, look, memory);
}

namespace {

// PyContextVar_Get, which the stable ABI leaves out.
int get_context(PyObject* variable, PyObject** value) {
  using Get = int (*)(PyObject*, PyObject*, PyObject**);
  static const Get get = reinterpret_cast<Get>(::dlsym(RTLD_DEFAULT, "PyContextVar_Get"));
  if (get != nullptr) return get(variable, nullptr, value);
  static PyObject* const name = intern("get");
  PyObject* arguments[] = {variable};
  *value = PyObject_VectorcallMethod(name, arguments, 1, nullptr);
  return *value != nullptr ? 0 : -1;
}

// A rank or tag, by its value; False: it is neither an int nor None.
bool add_number(nb::handle number, Likeness& look) {
  if (number.is_none()) return look.add(std::uint64_t{0}) && look.add(std::uint64_t{0});
  if (!PyLong_CheckExact(number.ptr())) return false;
  const long long value = PyLong_AsLongLong(number.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    return false;
  }
  return look.add(std::uint64_t{1}) && look.add(static_cast<std::uint64_t>(value));
}

// Which bytes of `output` an overlapping `input` begins at; all others are alike.
std::uint64_t relation(const Memory& output, const Memory& input) {
  const auto out = reinterpret_cast<std::uintptr_t>(output.data);
  const auto in = reinterpret_cast<std::uintptr_t>(input.data);
  const bool is_apart = in + input.nbytes <= out || out + output.nbytes <= in ||
                        input.nbytes == 0 || output.nbytes == 0;
  return is_apart ? ~std::uint64_t{0} : in - out;
}

// The functions of the public API call this first, with their own arguments.
class KnownCaller {
 public:
  // `run`: of a group that nobody watches. `work_type`: what an op that was begun is to the caller. `unfold`: see
  // begun_op.hpp.
  KnownCaller(nb::object current_world, nb::object group_type, nb::object run, nb::object op_type,
              nb::object profiler_facts, nb::object work_type, nb::object unfold)
      : current_world_(std::move(current_world)),
        group_type_(std::move(group_type)),
        op_type_(std::move(op_type)),
        run_(std::move(run)),
        profiler_facts_(std::move(profiler_facts)),
        work_type_(std::move(work_type)),
        unfold_(std::move(unfold)) {}

  // None: it was carried out. A Work: it was begun. bytes: nobody knows it yet; `learn` may, when it has
  // gone well. False: it has to go the Python way.
  nb::object collective(nb::handle function, nb::handle group, nb::handle async_op,
                        nb::handle timeout, nb::handle chosen, nb::handle also_chosen,
                        nb::handle output, nb::handle input) {
    nb::object holder;
    const bool is_async = async_op.ptr() == Py_True;
    if (!is_async && async_op.ptr() != Py_False) return no();
    nb::object default_group;
    KnownCalls* const calls = calls_of(group, is_async, timeout, holder, default_group);
    if (calls == nullptr) return no();
    Likeness look;
    look.add(function.ptr());
    // A rank, or a reduce op: a member of an enum, of which there is one each.
    if (PyLong_CheckExact(chosen.ptr()) || chosen.is_none()) {
      if (!add_number(chosen, look)) return no();
    } else {
      if (reinterpret_cast<PyObject*>(Py_TYPE(chosen.ptr())) != op_type_.ptr()) return no();
      look.add(std::uint64_t{2});
      look.add(chosen.ptr());
    }
    if (!add_number(also_chosen, look)) return no();
    Memory out;
    Memory in;
    if (!output.is_none() && !reader_.read(output, look, out)) return no();
    if (!input.is_none() && (!reader_.read(input, look, in) || !look.add(relation(out, in))))
      return no();
    if (is_async && std::max(out.nbytes, in.nbytes) > most_started_nbytes) return no();
    const KnownCalls::Known* const known = calls->find(look.bytes());
    if (known == nullptr) return to_bytes(look);
    if (!known->is_possible) return no();
    if (is_async) return start(*calls, *known, group, output, out, input, in);
    const Region out_region{out.data, out.nbytes};
    const Region in_region{in.data, in.nbytes};
    const std::span<const Region> none;
    const std::span<const Region> outputs(&out_region, 1);
    const std::span<const Region> inputs(&in_region, 1);
    if (!calls->group().run_known(known->compiled,
                                  output.is_none()  ? none
                                  : input.is_none() ? outputs
                                                    : inputs,
                                  output.is_none() ? none : outputs, output, calls->limit_ns))
      return no();
    ++calls->hits;
    return nb::none();
  }

  // The same of a message. The global rank that a recv came from: it was carried out.
  nb::object message(nb::handle function, nb::handle group, nb::handle timeout, nb::handle peer,
                     nb::handle group_peer, nb::handle tag, nb::handle array) {
    nb::object holder;
    nb::object default_group;
    KnownCalls* const calls = calls_of(group, false, timeout, holder, default_group);
    if (calls == nullptr) return no();
    Likeness look;
    look.add(function.ptr());
    Memory memory;
    if (!add_number(peer, look) || !add_number(group_peer, look) || !add_number(tag, look) ||
        !reader_.read(array, look, memory))
      return no();
    const KnownCalls::Known* const known = calls->find(look.bytes());
    if (known == nullptr) return to_bytes(look);
    if (!known->is_possible) return no();
    const nb::object result = known->result;
    const bool is_send = result.is_none();
    if (!calls->group().transfer_known(is_send, {memory.data, memory.nbytes}, array, known->dtype,
                                       known->peer, known->tag, calls->limit_ns, known->form))
      return no();
    ++calls->hits;
    return result;
  }

  // Of an op that failed: nanobind makes an exception of Python of it.
  PyObject* fail(std::exception_ptr error) {
    failure_ = std::move(error);
    static PyObject* const name = intern("raise_failure");
    PyObject* arguments[] = {nb::find(*this).ptr()};
    return PyObject_VectorcallMethod(name, arguments, 1, nullptr);
  }
  void raise_failure() {
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

  // Tensors are of this type from now on.
  void meet_torch(nb::object type) { reader_.set_tensor(std::move(type)); }
  bool has_met_torch() const { return reader_.has_tensor(); }
  void add_torch_dtype(nb::handle dtype) { reader_.add_torch_dtype(dtype); }

  // Whether native code sees of the caller's array the memory that the Python way found.
  bool sees(nb::handle array, const View& view) {
    Likeness look;
    Memory memory;
    return reader_.read(array, look, memory) && memory.data == view.data() &&
           memory.nbytes == view.nbytes() && !view.is_stand_in && view.finish.is_none();
  }

 private:
  static nb::object no() { return nb::borrow(Py_False); }
  static nb::object to_bytes(const Likeness& look) {
    const std::string_view bytes = look.bytes();
    return nb::bytes(bytes.data(), bytes.size());
  }

  // A known collective is begun: its Work.
  nb::object start(KnownCalls& calls, const KnownCalls::Known& known, nb::handle group,
                   nb::handle output, const Memory& out, nb::handle input, const Memory& in) {
    // Copies: what is kept may go while Python runs.
    const CompiledPlan compiled = known.compiled;
    const nb::object made = nb::inst_alloc(nb::type<BegunOp>());
    BegunOp& begun = *new (nb::inst_ptr<BegunOp>(made)) BegunOp();
    nb::inst_mark_ready(made);
    begun.like = known.like;
    std::vector<Region> inputs;
    std::vector<Region> outputs;
    begun.views = nb::make_tuple();
    if (!output.is_none()) {
      const nb::object out_view = view_of(output, out, known.out);
      outputs.push_back(region_of(out_view));
      if (input.is_none()) {
        inputs = outputs;
        begun.views = nb::make_tuple(out_view);
      } else {
        const nb::object in_view = view_of(input, in, known.in);
        inputs.push_back(region_of(in_view));
        begun.views = nb::make_tuple(in_view, out_view);
      }
    }
    begun.op = calls.group().submit_known(compiled, std::move(inputs), std::move(outputs),
                                          begun.views, calls.limit_ns);
    if (begun.op == nullptr) return no();
    ++calls.hits;
    static PyObject* const engine_name = intern("known_engine");
    static PyObject* const begun_name = intern("begun");
    begun.self = made;
    begun.group = nb::borrow(group);
    begun.engine = get(group, engine_name);
    begun.group_object = calls.group_object();
    begun.output = nb::borrow(output);
    begun.input = nb::borrow(input);
    begun.unwaited = calls.unwaited;
    begun.unfold = unfold_;
    auto* const type = reinterpret_cast<PyTypeObject*>(work_type_.ptr());
    static PyObject* const nothing = PyTuple_New(0);
    nb::object work = owned(type->tp_new(type, nothing, nullptr));
    // What it only reads is compared with what it was, others in flight are compared with it, and the line that
    // began it is looked for where the record has not got it: all of that by Python, and now.
    begun.is_left = input.is_none() && (!calls.is_watched || begun.op->site != 0) &&
                    PyList_Size(begun.unwaited.ptr()) == 0;
    if (begun.is_left) {
      if (PyList_Append(begun.unwaited.ptr(), made.ptr()) != 0) nb::raise_python_error();
      set(work, begun_name, made);
    } else {
      begun.call_unfold();
      set(work, begun_name,
          made);  // not before: one that fails is no Work that somebody has dropped
      begun.hand_to(work);
    }
    return work;
  }

  static Region region_of(nb::handle view) {
    const View& found = *nb::inst_ptr<View>(view);
    return {found.data(), found.nbytes()};
  }

  // As the engine makes it, of an array that is in no need of a stand-in.
  static nb::object view_of(nb::handle array, const Memory& memory,
                            const KnownCalls::Access& access) {
    const nb::handle held = memory.kept.is_valid() ? nb::handle(memory.kept) : array;
    const nb::object made = nb::inst_alloc(nb::type<View>());
    new (nb::inst_ptr<View>(made)) View(held, access.is_written, access.dtype);
    nb::inst_mark_ready(made);
    if (memory.kept.is_valid()) nb::inst_ptr<View>(made)->array = nb::borrow(array);
    return made;
  }

  // Null: what of a call like this nobody can know. `group` becomes the default one where that is meant, which
  // `default_group` holds.
  KnownCalls* calls_of(nb::handle& group, bool is_async, nb::handle timeout, nb::object& holder,
                       nb::object& default_group) {
    if (!timeout.is_none()) return nullptr;
    static PyObject* const default_name = intern("default");
    static PyObject* const calls_name = intern("known_calls");
    static PyObject* const run_name = intern("run");
    static PyObject* const profiler_name = intern("profiler");
    static PyObject* const enabled_name = intern("_is_profiler_enabled");
    if (group.is_none()) {
      PyObject* world = nullptr;
      if (get_context(current_world_.ptr(), &world) != 0) throw nb::python_error();
      if (world == nullptr) return nullptr;
      const nb::object held = nb::steal(world);
      default_group = get(held, default_name);
      group = default_group;
    }
    if (reinterpret_cast<PyObject*>(Py_TYPE(group.ptr())) != group_type_.ptr()) return nullptr;
    holder = get(group, calls_name);
    static PyObject* const calls_type = nb::type<KnownCalls>().ptr();
    if (reinterpret_cast<PyObject*>(Py_TYPE(holder.ptr())) != calls_type) return nullptr;
    auto& calls = *nb::inst_ptr<KnownCalls>(holder);
    if (!get(group_type_, run_name).is(run_)) return nullptr;  // somebody wants to see each op
    // An asynchronous op is compared with those in flight when it is one of them.
    if (!is_async && calls.is_watched && PyList_Size(calls.unwaited.ptr()) != 0) return nullptr;
    PyObject* const profiler = PyDict_GetItemWithError(profiler_facts_.ptr(), profiler_name);
    if (profiler != nullptr && profiler != Py_None &&
        !get(profiler, enabled_name).is(nb::handle(Py_False)))
      return nullptr;
    return &calls;
  }

  nb::object current_world_;
  nb::object group_type_;
  nb::object op_type_;
  nb::object run_;
  nb::object profiler_facts_;  // of runtime/recorder/torch_profiler.py
  nb::object work_type_;
  nb::object unfold_;
  ArrayReader reader_;
  std::exception_ptr failure_;
};

KnownCalls::Access access(nb::handle given) {
  const auto& view = nb::cast<const View&>(given);
  return {view.dtype_code(), !view.readonly()};
}

template <nb::object BegunOp::* member>
nb::any member_of(const BegunOp& op) {
  return nb::borrow<nb::any>(op.*member);
}

}  // namespace

void KnownCalls::unfold_begun() {
  if (!unwaited.is_valid() || PyList_Size(unwaited.ptr()) == 0) return;
  const nb::object first = nb::borrow(PyList_GetItem(unwaited.ptr(), 0));
  if (nb::isinstance<BegunOp>(first)) nb::inst_ptr<BegunOp>(first)->call_unfold();
}

void bind_known_calls(nb::module_& module) {
  nb::class_<KnownCalls>(module, "KnownCalls", "What calls of a group looked like, and became.")
      .def("__init__",
           [](KnownCalls* self, const nb::typed<nb::object, GroupHandle>& group) {
             new (self) KnownCalls(group);
           })
      .def_rw("limit_ns", &KnownCalls::limit_ns)
      .def_prop_ro("count", &KnownCalls::count)
      .def_ro("hits", &KnownCalls::hits)
      .def("watch",
           [](KnownCalls& self, const nb::list& unwaited, bool is_watched) {
             self.unfold_begun();
             self.unwaited = unwaited;
             self.is_watched = is_watched;
           })
      .def("unfold_begun", &KnownCalls::unfold_begun, "Unfold the op that stands in that list.")
      .def("forget", &KnownCalls::forget)
      .def("learn_collective",
           [](KnownCalls& self, const nb::bytes& look, const nb::tuple& kept, nb::object like,
              std::uint64_t code, const nb::tuple& inputs, const nb::tuple& outputs,
              std::int64_t extra) {
             KnownCalls::Known known;
             known.like = std::move(like);
             if (outputs.size() != 0) known.out = access(outputs[0]);
             if (inputs.size() != 0) known.in = access(inputs[0]);
             for (const nb::handle each : kept) known.kept.push_back(nb::borrow(each));
             known.compiled = self.group().plan_of(code, {{}, inputs, outputs}, extra);
             known.is_possible = known.compiled.plan != nullptr;
             self.keep(look, std::move(known));
           })
      .def(
          "learn_message",
          [](KnownCalls& self, const nb::bytes& look, const nb::tuple& kept, const View& view,
             int peer, std::int64_t tag, nb::object result) {
            KnownCalls::Known known;
            for (const nb::handle each : kept) known.kept.push_back(nb::borrow(each));
            known.form = self.group().form_of(result.is_none(), view);
            known.dtype = view.dtype_code();
            known.peer = peer;
            known.tag = tag;
            known.result = std::move(result);
            known.is_possible = true;
            self.keep(look, std::move(known));
          },
          nb::arg("look"), nb::arg("kept"), nb::arg("view"), nb::arg("peer"), nb::arg("tag"),
          nb::arg("result").none())
      .def("learn_impossible", [](KnownCalls& self, const nb::bytes& look, const nb::tuple& kept) {
        KnownCalls::Known known;
        for (const nb::handle each : kept) known.kept.push_back(nb::borrow(each));
        self.keep(look, std::move(known));
      });
  static PyType_Slot collected[] = {
      {Py_tp_traverse, reinterpret_cast<void*>(&BegunOp::traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(&BegunOp::clear)},
      {0, nullptr},
  };
  nb::class_<BegunOp>(module, "BegunOp", nb::type_slots(collected),
                      "A known op that was begun, before Python makes more of it.")
      .def("wait", &BegunOp::wait)
      .def("unfold", &BegunOp::call_unfold)
      .def_prop_ro("group", &member_of<&BegunOp::group>)
      .def_prop_ro("engine", &member_of<&BegunOp::engine>)
      .def_prop_ro("handle", [](const BegunOp& op) { return op.op; })
      .def_prop_ro("views", &member_of<&BegunOp::views>)
      .def_prop_ro("like", &member_of<&BegunOp::like>)
      .def_prop_ro("output", &member_of<&BegunOp::output>)
      .def_prop_ro("input", &member_of<&BegunOp::input>)
      .def_prop_ro("unwaited", &member_of<&BegunOp::unwaited>)
      .def_ro("is_over", &BegunOp::is_over)
      .def_ro("is_left", &BegunOp::is_left)
      .def_prop_ro("made", &member_of<&BegunOp::made>)
      .def("take", &BegunOp::take, nb::arg("parts"), nb::arg("started").none(), nb::arg("was_over"))
      .def("hand_to", &BegunOp::hand_to);
  nb::class_<KnownCaller>(module, "KnownCaller", "Carries out calls that are known.")
      .def(nb::init<nb::object, nb::object, nb::object, nb::object, nb::object, nb::object,
                    nb::object>())
      .def_prop_ro(
          "collective",
          [](nb::handle self) { return FastMethod<&KnownCaller::collective>::bind(self); },
          nb::for_getter(
              nb::sig("def collective(self, /) -> collections.abc.Callable[..., object]")))
      .def_prop_ro(
          "message", [](nb::handle self) { return FastMethod<&KnownCaller::message>::bind(self); },
          nb::for_getter(nb::sig("def message(self, /) -> collections.abc.Callable[..., object]")))
      .def("raise_failure", &KnownCaller::raise_failure)
      .def("meet_torch", &KnownCaller::meet_torch)
      .def_prop_ro("has_met_torch", &KnownCaller::has_met_torch)
      .def("add_torch_dtype", &KnownCaller::add_torch_dtype)
      .def("sees", &KnownCaller::sees);
}

}  // namespace distdbg

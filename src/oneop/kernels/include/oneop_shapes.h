/* oneop_shapes.h: fits the tensors of one call to a definition. For generated code only; C11 and C++17.
 *
 * The generated code describes an operator as tables (oneop_signature); oneop_fit does what `shapes` in oneop.h promises. It
 * gives the same results and the same messages as oneop.definition.binding does in Python.
 */
#ifndef ONEOP_SHAPES_H
#define ONEOP_SHAPES_H

#include "oneop.h"

/* The first thing that went wrong in an expression: `what` is NULL where nothing did, `where` the part that is wrong. */
typedef struct oneop_fault {
  const char *what, *where;
} oneop_fault;

/* The value of an expression, from the sizes that names are bound to and the int attributes. */
typedef int64_t (*oneop_expression)(const int64_t *dims, const oneop_attribute *attributes, oneop_fault *fault);

typedef enum oneop_dim_kind {
  ONEOP_DIM_ANY,       /* `_` */
  ONEOP_DIM_UNKNOWN,   /* `?k` */
  ONEOP_DIM_LITERAL,   /* number */
  ONEOP_DIM_NAME,      /* dims[number] */
  ONEOP_DIM_EXPRESSION /* evaluate() */
} oneop_dim_kind;

/* A name inside an expression, for messages. */
typedef struct oneop_term {
  const char *name;
  int32_t is_attribute;
  int32_t index;
} oneop_term;

typedef struct oneop_dim {
  oneop_dim_kind kind;
  const char *text;
  int64_t number;
  oneop_expression evaluate;
  const oneop_term *terms;
  int32_t n_terms;
} oneop_dim;

typedef enum oneop_arity { ONEOP_REQUIRED, ONEOP_OPTIONAL_INPUT, ONEOP_VARIADIC } oneop_arity;

typedef struct oneop_parameter {
  const char *name;
  const char *text; /* the shape as the definition writes it */
  const oneop_dim *dims;
  int32_t n_dims;
  int32_t group; /* which leading group (`*batch`), or -1 */
  oneop_arity arity;
  int32_t mirrors; /* an output that has the shapes of this input, or -1 */
} oneop_parameter;

/* The values that a `Literal` attribute may have. */
typedef struct oneop_choices {
  int32_t attribute;
  const char *name;
  const char *shown;
  const oneop_string *strings; /* NULL for ints */
  const int64_t *ints;
  int32_t n_values;
} oneop_choices;

typedef struct oneop_signature {
  const char *name;
  const char *const *groups; /* names of the leading groups */
  const oneop_parameter *inputs, *outputs;
  int32_t n_inputs, n_outputs, n_dims, n_groups;
  const oneop_choices *choices; /* one an attribute that has some */
  int32_t n_choices;
} oneop_signature;

/* Which tensor gave a name its size: an input (-1: none did) and an element of it. */
typedef struct oneop_source {
  int32_t input;
  int64_t element;
} oneop_source;

typedef struct oneop_group {
  oneop_source source;
  int32_t ndim;
  int64_t sizes[ONEOP_MAX_NDIM];
} oneop_group;

/* One call that is being fitted. */
typedef struct oneop_fitting {
  const oneop_signature *signature;
  const oneop_call *call;
  oneop_source *sources; /* one a name */
  oneop_group *groups;
} oneop_fitting;

/* ---- Messages -------------------------------------------------------------------------------------------------- */

typedef struct oneop_text {
  size_t used;
  char data[2048];
} oneop_text;

static inline void oneop_append(oneop_text *text, const char *format, ...) ONEOP_PRINTF(2, 3);
static inline void oneop_append(oneop_text *text, const char *format, ...) {
  const size_t room = sizeof text->data - text->used;
  va_list arguments;
  int length;
  va_start(arguments, format);
  length = vsnprintf(text->data + text->used, room, format, arguments);
  va_end(arguments);
  if (length > 0)
    text->used += (size_t)length < room ? (size_t)length : room - 1;
}

static inline void oneop_append_size(oneop_text *text, int64_t size) {
  if (size == ONEOP_UNKNOWN)
    oneop_append(text, "?");
  else
    oneop_append(text, "%lld", (long long)size);
}

/* Sizes as a Python tuple. */
static inline void oneop_append_sizes(oneop_text *text, const int64_t *sizes, int32_t ndim) {
  oneop_append(text, "(");
  for (int32_t d = 0; d < ndim; ++d) {
    if (d)
      oneop_append(text, ", ");
    oneop_append_size(text, sizes[d]);
  }
  oneop_append(text, ndim == 1 ? ",)" : ")");
}

static inline void oneop_append_input(oneop_text *text, const oneop_fitting *fitting, oneop_source which) {
  const oneop_parameter *input = &fitting->signature->inputs[which.input];
  if (input->arity == ONEOP_VARIADIC)
    oneop_append(text, "`%s[%lld]`", input->name, (long long)which.element);
  else
    oneop_append(text, "`%s`", input->name);
}

static inline void oneop_append_count(oneop_text *text, int32_t ndim) {
  oneop_append(text, ndim == 1 ? "%d dimension" : "%d dimensions", (int)ndim);
}

static inline int oneop_report(const oneop_fitting *fitting, const oneop_text *text) {
  fitting->call->context->fail(fitting->call->context, text->data);
  return 1;
}

static inline const oneop_tensor *oneop_tensor_of(const oneop_fitting *fitting, oneop_source which) {
  return &fitting->call->inputs[which.input].tensors[which.element];
}

/* `{op}: input `x` has shape (2, 3)` */
static inline void oneop_begin_input(oneop_text *text, const oneop_fitting *fitting, oneop_source which) {
  const oneop_tensor *tensor = oneop_tensor_of(fitting, which);
  oneop_append(text, "%s: input ", fitting->signature->name);
  oneop_append_input(text, fitting, which);
  oneop_append(text, " has shape ");
  oneop_append_sizes(text, tensor->shape, tensor->ndim);
}

static inline int oneop_wrong_rank(const oneop_fitting *fitting, oneop_source which) {
  const oneop_parameter *input = &fitting->signature->inputs[which.input];
  oneop_text text = {0, {0}};
  oneop_begin_input(&text, fitting, which);
  oneop_append(&text, ", ");
  oneop_append_count(&text, oneop_tensor_of(fitting, which)->ndim);
  oneop_append(&text, "; its definition is \"%s\", %s", input->text, input->group >= 0 ? "at least " : "");
  oneop_append_count(&text, input->n_dims);
  oneop_append(&text, ". Pass a tensor that fits.");
  return oneop_report(fitting, &text);
}

/* `wanted` is NULL for a literal dimension; `source` is NULL for an expression. */
static inline int oneop_wrong_size(const oneop_fitting *fitting, oneop_source which, const char *dim,
                                   const int64_t *wanted, const oneop_source *source) {
  oneop_text text = {0, {0}};
  oneop_begin_input(&text, fitting, which);
  oneop_append(&text, "; its definition is \"%s\"", fitting->signature->inputs[which.input].text);
  if (wanted) {
    oneop_append(&text, ", and %s is ", dim);
    oneop_append_size(&text, *wanted);
    oneop_append(&text, " here");
  }
  if (source) {
    oneop_append(&text, ", from ");
    oneop_append_input(&text, fitting, *source);
  }
  oneop_append(&text, ". Pass a tensor that fits.");
  return oneop_report(fitting, &text);
}

static inline int oneop_wrong_group(const oneop_fitting *fitting, oneop_source which, const oneop_group *group) {
  const oneop_parameter *input = &fitting->signature->inputs[which.input];
  oneop_text text = {0, {0}};
  oneop_begin_input(&text, fitting, which);
  oneop_append(&text, "; its definition is \"%s\", and *%s is ", input->text, fitting->signature->groups[input->group]);
  oneop_append_sizes(&text, group->sizes, group->ndim);
  oneop_append(&text, " here, from ");
  oneop_append_input(&text, fitting, group->source);
  oneop_append(&text, ". Pass a tensor that fits.");
  return oneop_report(fitting, &text);
}

static inline void oneop_append_terms(oneop_text *text, const oneop_fitting *fitting, const oneop_dim *dim) {
  for (int32_t t = 0; t < dim->n_terms; ++t) {
    const oneop_term *term = &dim->terms[t];
    oneop_append(text, t ? ", %s = " : ", with %s = ", term->name);
    if (term->is_attribute)
      oneop_append(text, "%lld", (long long)fitting->call->attributes[term->index].value.i);
    else
      oneop_append_size(text, fitting->call->dims[term->index]);
  }
}

static inline int oneop_wrong_arithmetic(const oneop_fitting *fitting, const oneop_dim *dim, const oneop_fault *fault) {
  oneop_text text = {0, {0}};
  oneop_append(&text, "%s: `%s` %s", fitting->signature->name, fault->where, fault->what);
  oneop_append_terms(&text, fitting, dim);
  oneop_append(&text, ". Pass other attributes or inputs.");
  return oneop_report(fitting, &text);
}

static inline int oneop_negative_size(const oneop_fitting *fitting, const oneop_parameter *output, const oneop_dim *dim,
                                      int32_t position, int64_t value) {
  oneop_text text = {0, {0}};
  oneop_append(&text, "%s: output `%s` would have size %lld in dimension %d (%s)", fitting->signature->name,
               output->name, (long long)value, (int)position, dim->text);
  oneop_append_terms(&text, fitting, dim);
  oneop_append(&text, ". Pass inputs and attributes that give a size of 0 or more.");
  return oneop_report(fitting, &text);
}

static inline int oneop_wrong_count(const oneop_fitting *fitting, const oneop_parameter *parameter, const char *role,
                                    int64_t count) {
  oneop_text text = {0, {0}};
  oneop_append(&text, "%s: %s `%s` is %lld tensors here; the definition has %s. Pass as many.",
               fitting->signature->name, role, parameter->name, (long long)count,
               parameter->arity == ONEOP_REQUIRED         ? "one"
               : parameter->arity == ONEOP_OPTIONAL_INPUT ? "one or none"
                                                          : "one or more");
  return oneop_report(fitting, &text);
}

static inline int oneop_too_many_dimensions(const oneop_fitting *fitting, const oneop_parameter *parameter,
                                            const char *role, int64_t ndim) {
  oneop_text text = {0, {0}};
  oneop_append(&text, "%s: %s `%s` has %lld dimensions; oneop takes %d at most. Merge some of them.",
               fitting->signature->name, role, parameter->name, (long long)ndim, ONEOP_MAX_NDIM);
  return oneop_report(fitting, &text);
}

/* ---- Arithmetic: Python's, checked; an unknown operand gives an unknown result ----------------------------------- */

static inline int64_t oneop_wrong(const char *what, const char *where, oneop_fault *fault) {
  if (!fault->what) {
    fault->what = what;
    fault->where = where;
  }
  return 0;
}

static inline int64_t oneop_checked(bool overflows, int64_t value, const char *where, oneop_fault *fault) {
  return overflows || value == ONEOP_UNKNOWN ? oneop_wrong("does not fit 64 bits", where, fault) : value;
}

static inline int64_t oneop_add(int64_t a, int64_t b, const char *where, oneop_fault *fault) {
  int64_t result;
  if (a == ONEOP_UNKNOWN || b == ONEOP_UNKNOWN)
    return ONEOP_UNKNOWN;
  const bool overflows = __builtin_add_overflow(a, b, &result);
  return oneop_checked(overflows, result, where, fault);
}

static inline int64_t oneop_subtract(int64_t a, int64_t b, const char *where, oneop_fault *fault) {
  int64_t result;
  if (a == ONEOP_UNKNOWN || b == ONEOP_UNKNOWN)
    return ONEOP_UNKNOWN;
  const bool overflows = __builtin_sub_overflow(a, b, &result);
  return oneop_checked(overflows, result, where, fault);
}

static inline int64_t oneop_multiply(int64_t a, int64_t b, const char *where, oneop_fault *fault) {
  int64_t result;
  if (a == ONEOP_UNKNOWN || b == ONEOP_UNKNOWN)
    return ONEOP_UNKNOWN;
  const bool overflows = __builtin_mul_overflow(a, b, &result);
  return oneop_checked(overflows, result, where, fault);
}

static inline int64_t oneop_floor_divide(int64_t a, int64_t b, const char *where, oneop_fault *fault) {
  if (b == 0)
    return oneop_wrong("divides by zero", where, fault);
  if (a == ONEOP_UNKNOWN || b == ONEOP_UNKNOWN)
    return ONEOP_UNKNOWN;
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

static inline int64_t oneop_modulo(int64_t a, int64_t b, const char *where, oneop_fault *fault) {
  if (b == 0)
    return oneop_wrong("divides by zero", where, fault);
  if (a == ONEOP_UNKNOWN || b == ONEOP_UNKNOWN)
    return ONEOP_UNKNOWN;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

static inline int64_t oneop_min(int64_t a, int64_t b) {
  if (a == ONEOP_UNKNOWN || b == ONEOP_UNKNOWN)
    return ONEOP_UNKNOWN;
  return b < a ? b : a;
}

static inline int64_t oneop_max(int64_t a, int64_t b) {
  if (a == ONEOP_UNKNOWN || b == ONEOP_UNKNOWN)
    return ONEOP_UNKNOWN;
  return b > a ? b : a;
}

/* An int attribute; the one value that means "unknown" counts as out of range. */
static inline int64_t oneop_int_attribute(const oneop_attribute *attribute, const char *where, oneop_fault *fault) {
  return oneop_checked(false, attribute->value.i, where, fault);
}

/* ---- Fitting --------------------------------------------------------------------------------------------------- */

static inline int oneop_fit_group(oneop_fitting *fitting, oneop_source which, oneop_group *group, int32_t ndim) {
  const int64_t *sizes = oneop_tensor_of(fitting, which)->shape;
  if (group->source.input < 0) {
    group->source = which;
    group->ndim = ndim;
    for (int32_t d = 0; d < ndim; ++d)
      group->sizes[d] = sizes[d];
    return 0;
  }
  if (group->ndim != ndim)
    return oneop_wrong_group(fitting, which, group);
  for (int32_t d = 0; d < ndim; ++d) {
    if (sizes[d] == ONEOP_UNKNOWN || sizes[d] == group->sizes[d])
      continue;
    if (group->sizes[d] != ONEOP_UNKNOWN)
      return oneop_wrong_group(fitting, which, group);
    group->sizes[d] = sizes[d];
  }
  return 0;
}

static inline int oneop_fit_name(oneop_fitting *fitting, oneop_source which, const oneop_dim *dim, int64_t size) {
  int64_t *bound = &fitting->call->dims[dim->number];
  oneop_source *source = &fitting->sources[dim->number];
  if (source->input < 0 || *bound == ONEOP_UNKNOWN) {
    *bound = size;
    *source = which;
    return 0;
  }
  if (size == ONEOP_UNKNOWN || size == *bound)
    return 0;
  return oneop_wrong_size(fitting, which, dim->text, bound, source);
}

/* Rank, leading group, literal sizes and names of one tensor. */
static inline int oneop_fit_tensor(oneop_fitting *fitting, oneop_source which) {
  const oneop_parameter *input = &fitting->signature->inputs[which.input];
  const oneop_tensor *tensor = oneop_tensor_of(fitting, which);
  const int32_t leading = tensor->ndim - input->n_dims;
  if (leading < 0 || (leading > 0 && input->group < 0))
    return oneop_wrong_rank(fitting, which);
  if (tensor->ndim > ONEOP_MAX_NDIM)
    return oneop_too_many_dimensions(fitting, input, "input", tensor->ndim);
  if (input->group >= 0 && oneop_fit_group(fitting, which, &fitting->groups[input->group], leading))
    return 1;
  for (int32_t d = 0; d < input->n_dims; ++d) {
    const oneop_dim *dim = &input->dims[d];
    const int64_t size = tensor->shape[leading + d];
    if (dim->kind == ONEOP_DIM_NAME && oneop_fit_name(fitting, which, dim, size))
      return 1;
    if (dim->kind == ONEOP_DIM_LITERAL && size != ONEOP_UNKNOWN && size != dim->number)
      return oneop_wrong_size(fitting, which, dim->text, NULL, NULL);
  }
  return 0;
}

/* The expressions of one tensor, once all names are bound. */
static inline int oneop_fit_expressions(oneop_fitting *fitting, oneop_source which) {
  const oneop_parameter *input = &fitting->signature->inputs[which.input];
  const oneop_tensor *tensor = oneop_tensor_of(fitting, which);
  for (int32_t d = 0; d < input->n_dims; ++d) {
    const oneop_dim *dim = &input->dims[d];
    const int64_t size = tensor->shape[tensor->ndim - input->n_dims + d];
    if (dim->kind != ONEOP_DIM_EXPRESSION)
      continue;
    oneop_fault fault = {NULL, NULL};
    const int64_t wanted = dim->evaluate(fitting->call->dims, fitting->call->attributes, &fault);
    if (fault.what)
      return oneop_wrong_arithmetic(fitting, dim, &fault);
    if (size != ONEOP_UNKNOWN && wanted != ONEOP_UNKNOWN && size != wanted)
      return oneop_wrong_size(fitting, which, dim->text, &wanted, NULL);
  }
  return 0;
}

static inline int oneop_fit_inputs(oneop_fitting *fitting, int (*step)(oneop_fitting *, oneop_source)) {
  for (int32_t i = 0; i < fitting->signature->n_inputs; ++i)
    for (int64_t e = 0; e < fitting->call->inputs[i].count; ++e) {
      const oneop_source which = {i, e};
      if (step(fitting, which))
        return 1;
    }
  return 0;
}

static inline int oneop_check_counts(const oneop_fitting *fitting) {
  const oneop_signature *signature = fitting->signature;
  for (int32_t i = 0; i < signature->n_inputs; ++i) {
    const oneop_parameter *input = &signature->inputs[i];
    const int64_t count = fitting->call->inputs[i].count;
    const bool enough = count >= (input->arity == ONEOP_OPTIONAL_INPUT ? 0 : 1);
    if (!enough || (count > 1 && input->arity != ONEOP_VARIADIC))
      return oneop_wrong_count(fitting, input, "input", count);
  }
  for (int32_t i = 0; i < signature->n_outputs; ++i) {
    const oneop_parameter *output = &signature->outputs[i];
    const int64_t count = fitting->call->outputs[i].count;
    const bool variadic = output->mirrors >= 0 && signature->inputs[output->mirrors].arity == ONEOP_VARIADIC;
    if (count != (variadic ? fitting->call->inputs[output->mirrors].count : 1))
      return oneop_wrong_count(fitting, output, "output", count);
  }
  return 0;
}

static inline int oneop_mirror(const oneop_fitting *fitting, const oneop_parameter *output, int32_t number) {
  const oneop_argument *given = &fitting->call->inputs[output->mirrors];
  const oneop_argument *results = &fitting->call->outputs[number];
  for (int64_t e = 0; e < results->count; ++e) {
    oneop_tensor *result = &results->tensors[e];
    result->ndim = given->count ? given->tensors[e].ndim : 1;
    result->shape[0] = 0; /* the gradient of an absent input */
    for (int32_t d = 0; given->count && d < result->ndim; ++d)
      result->shape[d] = given->tensors[e].shape[d];
  }
  return 0;
}

static inline int oneop_output_size(const oneop_fitting *fitting, const oneop_parameter *output, const oneop_dim *dim,
                                    int32_t position, int64_t *size) {
  oneop_fault fault = {NULL, NULL};
  switch (dim->kind) {
  case ONEOP_DIM_LITERAL:
    *size = dim->number;
    break;
  case ONEOP_DIM_NAME:
    *size = fitting->call->dims[dim->number];
    break;
  case ONEOP_DIM_EXPRESSION:
    *size = dim->evaluate(fitting->call->dims, fitting->call->attributes, &fault);
    break;
  case ONEOP_DIM_ANY:
  case ONEOP_DIM_UNKNOWN:
    *size = ONEOP_UNKNOWN;
    break;
  }
  if (fault.what)
    return oneop_wrong_arithmetic(fitting, dim, &fault);
  if (*size < 0 && *size != ONEOP_UNKNOWN)
    return oneop_negative_size(fitting, output, dim, position, *size);
  return 0;
}

static inline int oneop_size_output(const oneop_fitting *fitting, int32_t number) {
  const oneop_parameter *output = &fitting->signature->outputs[number];
  if (output->mirrors >= 0)
    return oneop_mirror(fitting, output, number);
  oneop_tensor *tensor = &fitting->call->outputs[number].tensors[0];
  const oneop_group *group = output->group >= 0 ? &fitting->groups[output->group] : NULL;
  const int32_t leading = group ? group->ndim : 0;
  if (leading + output->n_dims > ONEOP_MAX_NDIM)
    return oneop_too_many_dimensions(fitting, output, "output", leading + output->n_dims);
  tensor->ndim = leading + output->n_dims;
  for (int32_t d = 0; d < leading; ++d)
    tensor->shape[d] = group->sizes[d];
  for (int32_t d = 0; d < output->n_dims; ++d)
    if (oneop_output_size(fitting, output, &output->dims[d], leading + d, &tensor->shape[leading + d]))
      return 1;
  return 0;
}

/* What `shapes` in oneop.h does. `sources` and `groups` have room for one entry a name and a leading group. */
static inline bool oneop_is_choice(const oneop_choices *choices, const oneop_attribute *given) {
  if (given->kind == ONEOP_NONE)
    return true;
  for (int32_t i = 0; i < choices->n_values; ++i) {
    if (!choices->strings) {
      if (choices->ints[i] == given->value.i)
        return true;
      continue;
    }
    const oneop_string wanted = choices->strings[i], found = given->value.s;
    if (wanted.size == found.size && memcmp(wanted.data, found.data, (size_t)found.size) == 0)
      return true;
  }
  return false;
}

static inline int oneop_check_choices(const oneop_fitting *fitting) {
  for (int32_t i = 0; i < fitting->signature->n_choices; ++i) {
    const oneop_choices *choices = &fitting->signature->choices[i];
    const oneop_attribute *given = &fitting->call->attributes[choices->attribute];
    if (oneop_is_choice(choices, given))
      continue;
    oneop_text text = {0, {0}};
    oneop_append(&text, "%s: attribute `%s` is ", fitting->signature->name, choices->name);
    if (given->kind == ONEOP_INT)
      oneop_append(&text, "%lld", (long long)given->value.i);
    else
      oneop_append(&text, "'%.*s'", (int)(given->value.s.size < 200 ? given->value.s.size : 200), given->value.s.data);
    oneop_append(&text, ", not one of %s. Pass one of these.", choices->shown);
    fitting->call->context->fail(fitting->call->context, text.data);
    return 1;
  }
  return 0;
}

static inline int oneop_fit(const oneop_signature *signature, const oneop_call *call, oneop_source *sources,
                            oneop_group *groups) {
  oneop_fitting fitting = {signature, call, sources, groups};
  for (int32_t i = 0; i < signature->n_dims; ++i) {
    sources[i].input = -1;
    call->dims[i] = ONEOP_UNKNOWN;
  }
  for (int32_t i = 0; i < signature->n_groups; ++i) {
    groups[i].source.input = -1;
    groups[i].ndim = 0;
  }
  if (oneop_check_counts(&fitting) || oneop_check_choices(&fitting))
    return 1;
  if (oneop_fit_inputs(&fitting, oneop_fit_tensor))
    return 1;
  if (oneop_fit_inputs(&fitting, oneop_fit_expressions))
    return 1;
  for (int32_t i = 0; i < signature->n_outputs; ++i)
    if (oneop_size_output(&fitting, i))
      return 1;
  return 0;
}

#endif /* ONEOP_SHAPES_H */

/* {{ title }}
 *
 * Made by varprop {{ version }}. C99, no allocation, in {{ real }}; link with -lm.
 *
 *     double x[{{ p }}_COLUMNS] = { ... };           one number for each column:
{% for column in columns %}
 *         {{ loop.index0 }}  {{ column.comment }}{% if column.codes %}, a code:{% endif %}

{% for level in column.codes or () %}
 *             {{ loop.index0 }}  {{ level }}
{% endfor %}
{% endfor %}
 *     {{ p }}_prediction found;
 *     int bad = {{ p }}_predict(x, &found);
 *
 * The result is 0, or n if column n - 1 holds no number that the model takes ({% if impute %}NAN stands for
 * a missing number; {% endif %}of a category only codes), or -1 if the prediction is no finite number.
 */
#ifndef {{ p }}_H
#define {{ p }}_H

#include <float.h>
#include <math.h>
#include <string.h>

typedef {{ real }} {{ p }}_real;

enum {
  {{ p }}_COLUMNS = {{ columns|length }},
  {{ p }}_INPUTS = {{ n_inputs }},
{% if classes %}
  {{ p }}_CLASSES = {{ classes|length }},
{% else %}
  {{ p }}_TARGETS = {{ targets|length }},
{% endif %}
  {{ p }}_COMPONENTS = {{ shares|length }}
};

/* Places of the columns in x{% if classes %}, of the classes{% else %}, of the targets{% endif %}, and codes of the categories. */
enum {
{% for name, value in names %}
  {{ name }} = {{ value }}{{ "," if not loop.last }}
{% endfor %}
};

{% if classes %}
typedef struct {
  double probability[{{ p }}_CLASSES];
  double aleatoric; /* what of their entropy is chance, as far as the model knows */
} {{ p }}_prediction;
{% else %}
/* Of each target mean and standard deviation, and the Gaussians that its distribution is a mixture of. */
typedef struct {
  double mean[{{ p }}_TARGETS], std[{{ p }}_TARGETS];
  double m[{{ p }}_COMPONENTS][{{ p }}_TARGETS], s[{{ p }}_COMPONENTS][{{ p }}_TARGETS];
} {{ p }}_prediction;
{% endif %}

static inline {{ p }}_real {{ p }}_max({{ p }}_real a, {{ p }}_real b) { return a > b || a != a ? a : b; }
static inline {{ p }}_real {{ p }}_min({{ p }}_real a, {{ p }}_real b) { return a < b || a != a ? a : b; }
static inline {{ p }}_real {{ p }}_square({{ p }}_real a) { return a * a; }
static inline {{ p }}_real {{ p }}_sign({{ p }}_real a) { return ({{ p }}_real)((a > 0) - (a < 0)); }

/* The name of a column, of {% if classes %}a class{% else %}a target{% endif %}, and the code of a category's level: -1 if there is none. */
static inline const char *{{ p }}_column(int i) {
  static const char *const name[] = { {{ strings.columns }} };
  return name[i];
}
static inline const char *{{ p }}_{{ "class" if classes else "target" }}(int i) {
  static const char *const name[] = { {{ strings.results }} };
  return name[i];
}
{% if levels %}
static inline int {{ p }}_code(int column, const char *level) {
  static const char *const name[] = { {{ strings.levels }} };
  static const int first[] = { {{ first|join(", ") }} };
  for (int i = first[column]; i < first[column + 1]; i++)
    if (strcmp(name[i], level) == 0) return i - first[column];
  return -1;
}
{% endif %}

/* The model's numbers. */
static const {{ p }}_real {{ p }}_c[] = {
{{ numbers }}
};

{% for body in bodies %}
static inline void {{ p }}_f{{ loop.index0 }}(const {{ p }}_real *c, const {{ p }}_real *x,{{ " const " ~ p ~ "_real *x_var," if body.uncertain }} {{ p }}_real *out) {
{% for line in body.arrays %}
  {{ line }}
{% endfor %}
{% for line in body.lines %}
  {{ line }}
{% endfor %}
  (void)c;
  (void)x;
{% if body.uncertain %}
  (void)x_var;
{% endif %}
}

{% endfor %}
/* Share of every component. */
static const double {{ p }}_share[] = { {{ share_texts }} };

static inline int {{ p }}_predict(const double *given, {{ p }}_prediction *found) {
  static const double shift[] = { {{ shift }} };
  static const double scale[] = { {{ scale }} };
  static const int levels[] = { {{ level_counts }} }; /* 0 of a number */
{% if impute %}
  static const double unknown_mean[] = { {{ unknown_mean }} };
  static const double unknown_var[] = { {{ unknown_var }} };
  {{ p }}_real x_var[{{ p }}_INPUTS] = { 0 };
  int missing = 0;
{% endif %}
  {{ p }}_real x[{{ p }}_INPUTS], out[{{ n_out }}];
  int i = 0;
  memset(found, 0, sizeof *found);
  for (int j = 0; j < {{ p }}_COLUMNS; j++) {
    const double value = given[j];
    if (levels[j] > 0) {
      if (!(value >= 0 && value < levels[j] && floor(value) == value)) return j + 1;
      for (int k = 0; k < levels[j]; k++, i++)
        x[i] = ({{ p }}_real)(((k == (int)value) - shift[i]) / scale[i]);
      continue;
    }
{% if impute %}
    if (value != value) {
      x[i] = ({{ p }}_real)((unknown_mean[j] - shift[i]) / scale[i]);
      x_var[i] = ({{ p }}_real)(unknown_var[j] / (scale[i] * scale[i]));
      missing = 1;
      i++;
      continue;
    }
{% endif %}
    if (!(fabs(value) <= DBL_MAX)) return j + 1;
    x[i] = ({{ p }}_real)((value - shift[i]) / scale[i]);
    i++;
  }
{% if impute %}
  if (missing) {
{% for call in calls %}
    {{ p }}_f{{ call.other }}({{ p }}_c + {{ call.other_begin }}, x, x_var, out + {{ call.out }});
{% endfor %}
  } else {
{% for call in calls %}
    {{ p }}_f{{ call.body }}({{ p }}_c + {{ call.begin }}, x, out + {{ call.out }});
{% endfor %}
  }
{% else %}
{% for call in calls %}
  {{ p }}_f{{ call.body }}({{ p }}_c + {{ call.begin }}, x, out + {{ call.out }});
{% endfor %}
{% endif %}
{% if classes %}
  double sum = found->aleatoric = 0;
  for (int k = 0; k < {{ p }}_CLASSES; k++) found->probability[k] = 0;
  for (int i = 0; i < {{ p }}_COMPONENTS; i++) {
    const {{ p }}_real *o = out + {{ width }} * i;
    for (int k = 0; k < {{ p }}_CLASSES; k++) sum += found->probability[k] += {{ p }}_share[i] * o[k];
    found->aleatoric += {{ p }}_share[i] * o[{{ p }}_CLASSES];
  }
  return sum + found->aleatoric <= DBL_MAX ? 0 : -1;
{% else %}
  static const double y_shift[] = { {{ y_shift }} }, y_scale[] = { {{ y_scale }} };
  double all = 0;
  for (int t = 0; t < {{ p }}_TARGETS; t++) {
    double mean = 0, var = 0;
    for (int k = 0; k < {{ p }}_COMPONENTS; k++) {
      const {{ p }}_real *o = out + {{ width }} * k + t;
      found->m[k][t] = o[0];
      found->s[k][t] = sqrt((double)o[{{ p }}_TARGETS]);
      mean += {{ p }}_share[k] * o[{{ moments }} * {{ p }}_TARGETS];
    }
    for (int k = 0; k < {{ p }}_COMPONENTS; k++) {
      const {{ p }}_real *o = out + {{ width }} * k + t + {{ moments }} * {{ p }}_TARGETS;
      var += {{ p }}_share[k] * (o[{{ p }}_TARGETS] + (o[0] - mean) * (o[0] - mean));
    }
    found->mean[t] = mean * y_scale[t] + y_shift[t];
    found->std[t] = sqrt(var) * y_scale[t];
    all += fabs(found->mean[t]) + found->std[t];
  }
  return all <= DBL_MAX ? 0 : -1;
{% endif %}
}
{% if not classes %}

/* Where a target stands on the scale on which component k is Gaussian; slope is by the target. */
static inline double {{ p }}_scaled(int k, int t, double y, double *slope) {
  static const double y_shift[] = { {{ y_shift }} }, y_scale[] = { {{ y_scale }} };
  const double u = (y - y_shift[t]) / y_scale[t];
{% if powers %}
  static const double power[][{{ p }}_TARGETS] = { {{ powers }} };
  const double p = u >= 0 ? power[k][t] : 2 - power[k][t];
  if (p == 1) {
    *slope = 1 / y_scale[t];
    return u;
  }
  const double l = log1p(fabs(u)), x = p * l;
  *slope = exp((p - 1) * l) / y_scale[t];
  return copysign(x == 0 ? l : l * (expm1(x) / x), u);
{% else %}
  (void)k;
  *slope = 1 / y_scale[t];
  return u;
{% endif %}
}

/* P(Y <= y) of target t, or P(Y > y) if upper; the density is written to *density. */
static inline double {{ p }}_tail(const {{ p }}_prediction *found, int t, double y, int upper, double *density) {
  double sum = 0, slope, up = upper ? -1 : 1;
  *density = 0;
  for (int k = 0; k < {{ p }}_COMPONENTS; k++) {
    const double s = found->s[k][t], d = {{ p }}_scaled(k, t, y, &slope) - found->m[k][t];
    if (s > 0) {
      sum += {{ p }}_share[k] * 0.5 * erfc(-up * d / s * 0.70710678118654752440);
      *density += {{ p }}_share[k] * exp(-0.5 * (d / s) * (d / s)) / s * 0.39894228040143267794 * slope;
    } else {
      sum += up * d >= 0 ? {{ p }}_share[k] : 0;
    }
  }
  return sum;
}

static inline double {{ p }}_cdf(const {{ p }}_prediction *found, int t, double y) {
  double density;
  return {{ p }}_tail(found, t, y, 0, &density);
}

static inline double {{ p }}_density(const {{ p }}_prediction *found, int t, double y) {
  double density;
  {{ p }}_tail(found, t, y, 0, &density);
  return density;
}

/* The y with P(Y <= y) = alpha, 0 < alpha < 1: Newton's steps inside a bracket, halves where they leave it. */
static inline double {{ p }}_quantile(const {{ p }}_prediction *found, int t, double alpha) {
  const double a = alpha < 0.5 ? alpha : 1 - alpha;
  const int upper = alpha >= 0.5;
  double y = found->mean[t], step = found->std[t], density, low = y, high = y;
  if (!(alpha > 0 && alpha < 1)) return NAN;
  /* With the smaller tail, whose digits are exact. */
  while (({{ p }}_tail(found, t, low, upper, &density) >= a) != upper && fabs(low) < DBL_MAX / 4) low -= step *= 2;
  step = found->std[t];
  while (({{ p }}_tail(found, t, high, upper, &density) >= a) == upper && fabs(high) < DBL_MAX / 4) high += step *= 2;
  for (int n = 0; n < 200; n++) {
    const double gap = (upper ? -1 : 1) * ({{ p }}_tail(found, t, y, upper, &density) - a);
    double next;
    if (gap == 0) break;
    if (gap < 0) low = y; else high = y;
    next = y - gap / density;
    if (!(next > low && next < high) || n > 20) next = 0.5 * low + 0.5 * high;
    if (next == y || fabs(next - y) <= 1e-15 * found->std[t]) return next;
    y = next;
  }
  return y;
}

/* The interval that holds target t with a probability, as much on either side of it. */
static inline void {{ p }}_interval(const {{ p }}_prediction *found, int t, double probability, double *lower, double *upper) {
  *lower = {{ p }}_quantile(found, t, 0.5 - 0.5 * probability);
  *upper = {{ p }}_quantile(found, t, 0.5 + 0.5 * probability);
}
{% endif %}

#endif

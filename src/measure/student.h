// Student's distribution and its noncentral form: levels of small samples, and the power a test of them has.
#pragma once

namespace redline::measure {

double normal_cdf(double x);

// P(T <= x) with n >= 1 degrees of freedom, and its inverse for 0.5 <= p < 1.
double student_cdf(double x, int n);
double student_quantile(double p, int n);

// P(T <= x) of a t statistic whose numerator has the mean `shift` instead of 0.
double noncentral_student_cdf(double x, int n, double shift);

// The chance that a one-sided t test of n values at `level` finds a mean that lies `effect` standard deviations away.
double one_sided_power(int n, double effect, double level);
// The fewest values with that power, at most `most`; most + 1 when not even those have it.
int values_needed(double effect, double level, double power, int most = 10000);

}  // namespace redline::measure

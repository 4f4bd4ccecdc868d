#include "measure/student.h"

#include <gtest/gtest.h>

#include <cmath>

namespace redline::measure {
namespace {

TEST(Student, QuantilesOfTheTable) {
  EXPECT_NEAR(student_quantile(0.975, 1), 12.7062, 1e-3);
  EXPECT_NEAR(student_quantile(0.975, 3), 3.18245, 1e-4);
  EXPECT_NEAR(student_quantile(0.95, 10), 1.81246, 1e-4);
  EXPECT_NEAR(student_quantile(0.995, 2), 9.92484, 1e-4);
  EXPECT_NEAR(student_cdf(-student_quantile(0.9, 7), 7), 0.1, 1e-9);
}

// Values of SciPy's nct.
TEST(Student, TheNoncentralForm) {
  EXPECT_NEAR(noncentral_student_cdf(2.0, 3, 1.0), 0.7436298684, 1e-7);
  EXPECT_NEAR(noncentral_student_cdf(1.5, 10, 2.5), 0.1624379038, 1e-7);
  EXPECT_NEAR(noncentral_student_cdf(-0.5, 5, 0.7), 0.1225809069, 1e-7);
  EXPECT_NEAR(noncentral_student_cdf(12, 4, 8), 0.7705292312, 1e-7);
  for (const int n : {1, 2, 5, 11})
    for (const double x : {-2.0, 0.0, 0.7, 3.0}) EXPECT_NEAR(noncentral_student_cdf(x, n, 0), student_cdf(x, n), 1e-6);
}

TEST(Student, PowerOfATest) {
  EXPECT_NEAR(one_sided_power(4, 1, 0.025), 0.28854867, 1e-6);
  EXPECT_NEAR(one_sided_power(5, 2, 0.05), 0.97483057, 1e-6);
  EXPECT_NEAR(one_sided_power(12, 0.8, 0.017), 0.64217991, 1e-6);
  EXPECT_NEAR(one_sided_power(9, 0, 0.05), 0.05, 1e-6);
  EXPECT_LT(one_sided_power(9, -1, 0.05), 0.01);
}

TEST(Student, ValuesNeeded) {
  for (const double effect : {0.3, 0.8, 2.0, 6.0}) {
    const int n = values_needed(effect, 0.03, 0.9);
    EXPECT_GE(one_sided_power(n, effect, 0.03), 0.9) << effect;
    EXPECT_TRUE(n == 2 || one_sided_power(n - 1, effect, 0.03) < 0.9) << effect;
  }
  EXPECT_EQ(values_needed(0, 0.05, 0.9), 10001);
  EXPECT_EQ(values_needed(0.01, 0.05, 0.9, 50), 51);
}

}  // namespace
}  // namespace redline::measure

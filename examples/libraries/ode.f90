! Integrates the learned equation of rhs.so by the implicit midpoint rule, and compares
! with a fine explicit integration of the same equation. Writes a table of time,
! position and velocity: ode TABLE
program ode
  use, intrinsic :: iso_c_binding, only: c_double, c_int64_t
  use, intrinsic :: iso_fortran_env, only: error_unit
  use rhs_library
  implicit none
  integer, parameter :: steps = 1600, fine = 40, most_iterations = 20
  real(c_double), parameter :: duration = 16.0_c_double, start(2) = [1.0_c_double, 0.0_c_double]
  real(c_double) :: coarse(2, 0:steps), halved(2, 0:2 * steps), exact(2, 0:steps)
  real(c_double) :: h, error, error_of_halved
  character(1000) :: table
  integer :: step, unit

  call get_command_argument(1, table)
  if (table == "") error stop "give a file for the table"
  h = duration / steps
  call integrate(steps, coarse)
  call integrate(2 * steps, halved)

  exact(:, 0) = start
  do step = 1, steps
    exact(:, step) = by_runge_kutta(exact(:, step - 1))
  end do

  open (newunit=unit, file=trim(table), action="write", status="replace")
  do step = 0, steps
    write (unit, "(3es24.16)") step * h, halved(:, 2 * step)
  end do
  close (unit)

  error = maxval(abs(coarse - exact))
  error_of_halved = maxval(abs(halved(:, 0::2) - exact))
  print "(a, es9.2, a, es9.2)", "error of the midpoint rule ", error, &
    ", with half of the step ", error_of_halved
  if (error_of_halved > 1e-2_c_double) error stop "the two integrations differ"
  if (abs(error / error_of_halved - 4) > 0.4_c_double) error stop "the rule is not of second order"

contains

  function field(state) result(rate)
    real(c_double), intent(in) :: state(2)
    real(c_double) :: rate(2)
    call rhs_check(rhs(1_c_int64_t, state, rate))
  end function field

  ! The state solves new = old + h field((old + new) / 2), which Newton's iterations find.
  function by_midpoint(old, h) result(new)
    real(c_double), intent(in) :: old(2), h
    real(c_double) :: new(2), middle(2), jacobian(2, 2), residual(2), change(2)
    integer :: iteration
    new = old + h * field(old)
    do iteration = 1, most_iterations
      middle = (old + new) / 2
      residual = new - old - h * field(middle)
      ! jacobian(j, i) is the derivative of rate i with respect to state j.
      call rhs_check(rhs_jacobian(1_c_int64_t, middle, jacobian))
      change = solved(-h / 2 * transpose(jacobian), residual)
      new = new - change
      if (maxval(abs(change)) < 1e-13_c_double * (1 + maxval(abs(new)))) return
    end do
    write (error_unit, *) "the last change was ", change
    error stop "Newton's iterations do not converge"
  end function by_midpoint

  ! The solution x of (1 + matrix) x = given, by Cramer's rule.
  function solved(matrix, given) result(x)
    real(c_double), intent(in) :: matrix(2, 2), given(2)
    real(c_double) :: x(2), a(2, 2)
    a = matrix
    a(1, 1) = a(1, 1) + 1
    a(2, 2) = a(2, 2) + 1
    x(1) = given(1) * a(2, 2) - given(2) * a(1, 2)
    x(2) = given(2) * a(1, 1) - given(1) * a(2, 1)
    x = x / (a(1, 1) * a(2, 2) - a(1, 2) * a(2, 1))
  end function solved

  subroutine integrate(count, states)
    integer, intent(in) :: count
    real(c_double), intent(out) :: states(2, 0:count)
    integer :: step
    states(:, 0) = start
    do step = 1, count
      states(:, step) = by_midpoint(states(:, step - 1), duration / count)
    end do
  end subroutine integrate

  ! The state after a step h, by small steps of the classical rule of fourth order.
  function by_runge_kutta(old) result(new)
    real(c_double), intent(in) :: old(2)
    real(c_double) :: new(2), k(2, 4), small
    integer :: part
    small = h / fine
    new = old
    do part = 1, fine
      k(:, 1) = field(new)
      k(:, 2) = field(new + small / 2 * k(:, 1))
      k(:, 3) = field(new + small / 2 * k(:, 2))
      k(:, 4) = field(new + small * k(:, 3))
      new = new + small / 6 * (k(:, 1) + 2 * k(:, 2) + 2 * k(:, 3) + k(:, 4))
    end do
  end function by_runge_kutta
end program ode

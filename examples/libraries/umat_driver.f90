! Calls the UMAT along a path of strains, as ABAQUS does, and compares its tangent with
! central differences of its stress, and the work along the path with its energy.
program umat_driver
  use, intrinsic :: iso_c_binding, only: c_double
  implicit none
  call follow(3, 3)  ! solids
  call follow(3, 1)  ! plane strain

contains

  subroutine follow(ndi, nshr)
    integer, intent(in) :: ndi, nshr
    integer, parameter :: increments = 200
    real(c_double), parameter :: small = 1e-6_c_double
    real(c_double), dimension(ndi + nshr) :: stran, dstran, before, stress, shift, up, down
    real(c_double), dimension(ndi + nshr, ndi + nshr) :: ddsdde, other
    real(c_double) :: energy, begun, work, error, largest, turn
    integer :: increment, i, n
    n = ndi + nshr
    stran = 0
    work = 0
    error = 0
    largest = 0
    call at(ndi, nshr, stran, 0 * stran, before, ddsdde, begun)
    do increment = 1, increments
      turn = 3 * real(increment, c_double) / increments
      dstran = path(turn, n) - stran
      call at(ndi, nshr, stran, dstran, stress, ddsdde, energy)
      do i = 1, n
        shift = 0
        shift(i) = small
        call at(ndi, nshr, stran, dstran + shift, up, other, energy)
        call at(ndi, nshr, stran, dstran - shift, down, other, energy)
        error = max(error, maxval(abs(ddsdde(:, i) - (up - down) / (2 * small))))
      end do
      largest = max(largest, maxval(abs(ddsdde)))
      if (maxval(abs(ddsdde - transpose(ddsdde))) > 1e-9_c_double * largest) &
        error stop "the tangent is not symmetric"
      work = work + dot_product(dstran, before + stress) / 2
      stran = stran + dstran
      before = stress
    end do
    call at(ndi, nshr, stran, 0 * stran, stress, ddsdde, energy)
    print "(i1, a, f8.1, a, es8.1)", n, " components: stress 11 is ", stress(1), &
      " MPa, the tangent's relative error ", error / largest
    print "(a, f8.5, a, f8.5)", "  energy ", energy - begun, ", work along the path ", work
    if (error > 1e-6_c_double * largest) error stop "the tangent is not the derivative of the stress"
    if (abs(work - (energy - begun)) > 1e-3_c_double * energy) error stop "the work is not the energy"
  end subroutine follow

  ! Strains after a part of the path: tension, then shear beside it, then some back.
  function path(turn, n) result(strain)
    real(c_double), intent(in) :: turn
    integer, intent(in) :: n
    real(c_double) :: strain(n)
    strain = 0
    strain(1) = 0.02_c_double * (min(turn, 1.0_c_double) - max(turn - 2, 0.0_c_double) / 3)
    strain(2) = -0.3_c_double * strain(1)
    strain(4) = 0.02_c_double * max(0.0_c_double, min(turn - 1, 1.0_c_double))
    if (n == 6) strain(6) = 0.01_c_double * turn / 3
  end function path

  subroutine at(ndi, nshr, stran, dstran, stress, ddsdde, sse)
    integer, intent(in) :: ndi, nshr
    real(c_double), intent(in), dimension(ndi + nshr) :: stran, dstran
    real(c_double), intent(out) :: stress(ndi + nshr), ddsdde(ndi + nshr, ndi + nshr), sse
    external :: umat
    real(c_double), dimension(ndi + nshr) :: ddsddt, drplde
    real(c_double) :: statev(1), spd, scd, rpl, drpldt, time(2), predef(1), dpred(1), &
      props(1), coords(3), drot(3, 3), pnewdt, dfgrd(3, 3)
    character(80) :: cmname
    integer :: kstep(4)
    cmname = "LEARNED"
    drot = reshape([1, 0, 0, 0, 1, 0, 0, 0, 1], [3, 3])
    dfgrd = drot
    statev = 0
    spd = 0
    scd = 0
    rpl = 0
    drpldt = 0
    ddsddt = 0
    drplde = 0
    time = 0
    predef = 0
    dpred = 0
    props = 0
    coords = 0
    pnewdt = 1
    kstep = 1
    call umat(stress, statev, ddsdde, sse, spd, scd, rpl, ddsddt, drplde, drpldt, stran, &
      dstran, time, 1.0_c_double, 293.0_c_double, 0.0_c_double, predef, dpred, cmname, &
      ndi, nshr, ndi + nshr, 1, props, 1, coords, drot, pnewdt, 1.0_c_double, dfgrd, &
      dfgrd, 1, 1, 1, 1, kstep, 1)
  end subroutine at
end program umat_driver

! A material law for ABAQUS: stress and tangent of the net in material.so.
!
! Strains are small, shear strains are engineering strains. Elements are solids (NTENS =
! 6) or have plane strain or axial symmetry (NTENS = 4).
include "material.f90"

subroutine umat(stress, statev, ddsdde, sse, spd, scd, rpl, ddsddt, drplde, drpldt, &
    stran, dstran, time, dtime, temp, dtemp, predef, dpred, cmname, ndi, nshr, ntens, &
    nstatv, props, nprops, coords, drot, pnewdt, celent, dfgrd0, dfgrd1, noel, npt, &
    layer, kspt, kstep, kinc)
  use, intrinsic :: iso_c_binding, only: c_double
  use material_library
  implicit none
  character(80) :: cmname
  integer :: ndi, nshr, ntens, nstatv, nprops, noel, npt, layer, kspt, kstep(4), kinc
  real(c_double) :: stress(ntens), statev(nstatv), ddsdde(ntens, ntens), sse, spd, scd, &
    rpl, ddsddt(ntens), drplde(ntens), drpldt, stran(ntens), dstran(ntens), time(2), &
    dtime, temp, dtemp, predef(*), dpred(*), props(nprops), coords(3), drot(3, 3), &
    pnewdt, celent, dfgrd0(3, 3), dfgrd1(3, 3)
  real(c_double) :: strain(6), full_stress(6), tangent(6, 6)
  integer :: places(ntens), i

  if (ndi /= 3) error stop "umat: elements need three normal stresses, not plane stress"
  places = [1, 2, 3, (3 + i, i=1, nshr)]
  strain = 0
  strain(places) = stran + dstran
  call material_check(material_energy(strain, sse))
  call material_check(material_stress(strain, full_stress))
  call material_check(material_tangent(strain, tangent))
  stress = full_stress(places)
  ddsdde = tangent(places, places)
end subroutine umat

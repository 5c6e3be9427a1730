"""The D'Kitty as a MuJoCo model, written here from its dimensions: masses, inertias and joints of ROBEL's robot.

Collision shapes are boxes and capsules, two for each link, with the inertia given explicitly; what is drawn are more boxes
without mass, and they are part of the model only where something is rendered.
"""

from __future__ import annotations

from typing import Literal

from beeline.envs.dkitty.robot import HEIGHT, HIPS, JOINT_RANGE, JOINTS, LEGS, TIMESTEP
from beeline.envs.dkitty.terrain import PATH, RANDOM_FIELD, RANDOM_FIELD_Z, Grid, Terrain

Root = Literal["hinges", "free"]
TEXELS = 4  # of the drawn ground, along the side of a cell

# (mass, z of the centre of mass, inertia about it in 1e-6 kg m²) of the links of a leg, from the hip down
LINKS = (
    (0.118, 0.075873, (70.73, 70.46, 24.48)),
    (0.118, 0.075831, (65.67, 72.85, 24.49)),
    (0.040, 0.0608, (30.94, 34.95, 7.77)),
)
LINK_Z = (0.0, 0.0965, 0.0945)  # of each link in the one before it
AXES = ("0 1 0", "1 0 0", "1 0 0")
TORSO = (0.73, (7638.9, 2562.7, 10071.8))

Box = tuple[tuple[float, float, float], tuple[float, float, float]]  # position, half sizes
LINK_BOXES: tuple[tuple[Box, ...], ...] = (
    (((0, 0, 0.026), (0.013, 0.0215, 0.029)), ((0, 0, 0.0815), (0.019, 0.0155, 0.0265))),
    (((0, 0, 0.026), (0.0215, 0.013, 0.029)), ((0, 0, 0.0805), (0.019, 0.0155, 0.0265))),
    (((0, 0, 0.029), (0.0215, 0.0145, 0.032)),),
)
FOOT = '<geom class="solid" name="{leg}foot" type="capsule" size="0.0103 0.0187" pos="0 0 0.082"/>'
TORSO_BOXES: tuple[Box, ...] = tuple(
    ((0, side * y, 0), half)
    for side in (1, -1)
    for y, half in (
        (0.12195, (0.0624, 0.01595, 0.0176)),
        (0.0796, (0.053, 0.02625, 0.0176)),
        (0.0262, (0.042, 0.0273, 0.0176)),
    )
) + tuple(((x, y, 0), (0.024, 0.018, 0.015)) for x in (0.078, -0.078) for y in (0.122, -0.122))

# What is drawn: brackets of bent plate and the motors that they hold.
_PLATE, _MOTOR = "plate", "motor"
DRAWN: tuple[tuple[tuple[str, Box], ...], ...] = (
    (
        (_PLATE, ((0, 0.02, 0.026), (0.013, 0.0015, 0.029))),
        (_PLATE, ((0, -0.02, 0.026), (0.013, 0.0015, 0.029))),
        (_PLATE, ((0, 0, 0.051), (0.016, 0.019, 0.004))),
        (_PLATE, ((0, 0, 0.061), (0.019, 0.013, 0.006))),
        (_MOTOR, ((0, 0, 0.084), (0.018, 0.015, 0.024))),
    ),
    (
        (_PLATE, ((0.02, 0, 0.026), (0.0015, 0.013, 0.029))),
        (_PLATE, ((-0.02, 0, 0.026), (0.0015, 0.013, 0.029))),
        (_PLATE, ((0, 0, 0.051), (0.019, 0.016, 0.004))),
        (_PLATE, ((0, 0, 0.060), (0.019, 0.013, 0.006))),
        (_MOTOR, ((0, 0, 0.084), (0.018, 0.015, 0.023))),
    ),
    (
        (_PLATE, ((0.02, 0, 0.026), (0.0015, 0.013, 0.029))),
        (_PLATE, ((-0.02, 0, 0.026), (0.0015, 0.013, 0.029))),
        (_PLATE, ((0, 0, 0.052), (0.019, 0.016, 0.004))),
        (_PLATE, ((0, 0, 0.058), (0.0195, 0.014, 0.003))),
    ),
)


def xml(root: Root = "hinges", *, field: bool = False, terrain: Terrain | None = None, drawn: bool = False) -> str:
    """The robot on its ground: a plane, the plane with ROBEL's random height field, or a terrain.

    `free` puts the torso on a free joint, which has no singular attitude; `hinges` is the original's chain of three slides
    and three hinges with its limits. `drawn` adds what only a picture needs.
    """
    drag = terrain.drag if terrain else 0.0
    return f"""
<mujoco model="dkitty">
  <compiler angle="radian" autolimits="true"/>
  <option timestep="{TIMESTEP}"/>
  <default>
    <default class="solid">
      <geom condim="4" margin="0.001" solref="0.02 1" solimp="0.8 0.9 0.01" group="3"/>
    </default>
    <default class="drawn">
      <geom contype="0" conaffinity="0" group="1"/>
    </default>
    <default class="leg">
      <joint damping="1" armature="0.001"/>
    </default>
  </default>
  {_looks(_drawn_grid(field, terrain)) if drawn else ""}
  <asset>{_field_asset(field, terrain)}</asset>
  <worldbody>
    {_ground(field, terrain, drawn)}
    <site name="target" type="cylinder" size="0.5 0.005" pos="0 2 0" rgba="0.1 0.7 0.35 0.4"/>
    <site name="heading" type="cylinder" size="0.05 0.25" pos="0 2 0.25" rgba="0.1 0.7 0.35 0.4"/>
    <body name="torso" pos="0 0 {HEIGHT}">
      {_root(root)}
      {_inertial(TORSO[0], 0.0, TORSO[1])}
      {"".join(_box("solid", box) for box in TORSO_BOXES)}
      <geom class="solid" type="sphere" size="0.01"/>
      <site name="torso" type="box" size="0.09 0.15 0.007" rgba="0 0 0 0"/>
      <camera name="above" mode="trackcom" pos="0 0 3"/>
      <camera name="side" mode="trackcom" pos="1.5 1.5 0.35" xyaxes="-0.7 1 0 0 -0.3 1"/>
      {_shell() if drawn else ""}
      {"".join(_leg(number, drawn) for number in range(4))}
    </body>
  </worldbody>
  <actuator>
    {"".join(f'<position joint="{joint}" kp="5" ctrlrange="{low} {high}"/>' for joint, (low, high) in zip(JOINTS, JOINT_RANGE))}
    {_drag(drag) if drag else ""}
  </actuator>
  <sensor>
    {"".join(f'<jointpos joint="{joint}"/>' for joint in JOINTS)}
    {"".join(f'<jointvel joint="{joint}"/>' for joint in JOINTS)}
  </sensor>
</mujoco>
"""


def _root(root: Root) -> str:
    if root == "free":
        return '<freejoint name="root"/>'
    slides = zip("xyz", ("1 0 0", "0 1 0", "0 0 1"), (10, 10, 2))
    hinges = zip("xyz", ("1 0 0", "0 1 0", "0 0 1"))
    return "".join(f'<joint name="T{n}" type="slide" axis="{axis}" range="-{r} {r}"/>' for n, axis, r in slides) + "".join(
        f'<joint name="R{n}" type="hinge" axis="{axis}" range="-3.14 3.14"/>' for n, axis in hinges
    )


def _inertial(mass: float, z: float, inertia: tuple[float, float, float]) -> str:
    principal = " ".join(f"{value * 1e-6:.8g}" for value in inertia)
    return f'<inertial pos="0 0 {z}" mass="{mass}" diaginertia="{principal}"/>'


def _box(kind: str, box: Box, more: str = "") -> str:
    (x, y, z), (a, b, c) = box
    return f'<geom class="{kind}" type="box" pos="{x} {y} {z}" size="{a} {b} {c}" {more}/>'


def _leg(number: int, drawn: bool) -> str:
    leg, (x, y), side = LEGS[number], HIPS[number], number in (0, 3)
    place = f'pos="{x} {y} 0" axisangle="0 1 0 {"-" if side else ""}3.14"'  # 3.14, not π: so the original's legs lean
    parts, closing = [], ""
    for link, (mass, centre, inertia) in enumerate(LINKS):
        joint = 3 * number + link
        low, high = JOINT_RANGE[joint]
        name = f"{leg}{number + 1}{link}"
        parts.append(f'<body name="{name}" {place} childclass="leg">')
        parts.append(f'<joint name="{JOINTS[joint]}" axis="{AXES[link]}" range="{low} {high}"/>')
        parts.append(_inertial(mass, centre, inertia))
        parts += [_box("solid", box) for box in LINK_BOXES[link]]
        if drawn:
            parts += [_box("drawn", box, f'material="{kind}"') for kind, box in DRAWN[link]]
        closing += "</body>"
        place = f'pos="0 0 {LINK_Z[link + 1]}"' if link < 2 else ""
    parts.append(FOOT.format(leg=leg))
    parts.append(f'<site name="{leg}foot" type="sphere" size="0.0105" pos="0 0 0.101" rgba="0 0 0 0"/>')
    parts.append(f'<site name="{leg}shank" pos="0 0 {LINKS[2][1]}" rgba="0 0 0 0"/>')
    if drawn:
        parts.append('<geom class="drawn" type="capsule" size="0.0103 0.0187" pos="0 0 0.082" material="rubber"/>')
    return "".join(parts) + closing


def _drag(strength: float) -> str:
    """Viscous drag on the shanks, as of stalks: at their centres of mass, a force against the velocity along each axis."""
    return "".join(
        f'<general site="{leg}shank" gear="{axis} 0 0 0" gaintype="fixed" gainprm="0" biastype="affine" '
        f'biasprm="0 0 -{strength}"/>'
        for leg in LEGS
        for axis in ("1 0 0", "0 1 0", "0 0 1")
    )


# --- ground -----------------------------------------------------------------------------------------------------------


def _drawn_grid(field: bool, terrain: Terrain | None) -> Grid | None:
    """The height field that gets a picture of its own, if there is one."""
    if terrain:
        return PATH if terrain.surface else None
    return RANDOM_FIELD if field else None


def _field_asset(field: bool, terrain: Terrain | None) -> str:
    grid = _drawn_grid(field, terrain)
    if grid is None:
        return ""
    size = f"{grid.half_x} {grid.half_y} 1 0.1"
    return f'<hfield name="ground" nrow="{grid.rows}" ncol="{grid.columns}" size="{size}"/>'


def _ground(field: bool, terrain: Terrain | None, drawn: bool) -> str:
    grid = _drawn_grid(field, terrain)
    picture = 'material="ground"' if drawn else ""
    floor = f'material="{"hollows" if field and grid else "floor"}"' if drawn else ""
    if terrain is None:
        bumps = f'<geom name="ground" type="hfield" hfield="ground" pos="0 0 {RANDOM_FIELD_Z}" {picture}/>' if grid else ""
        return f'<geom name="floor" type="plane" size="5 5 0.1" {floor}/>' + bumps
    # Its priority makes the ground's friction and softness those of the contact: a slippery ground needs it.
    contact = f'priority="1" condim="4" solref="{terrain.solref}" solimp="{terrain.solimp}"'
    if grid is None:
        return f'<geom name="ground" type="plane" size="6 6 0.1" {contact} {floor}/>'
    return f'<geom name="ground" type="hfield" hfield="ground" pos="0 {grid.centre_y} 0" {contact} {picture}/>'


# --- looks ------------------------------------------------------------------------------------------------------------


def _looks(grid: Grid | None) -> str:
    ground, shadow = "", 0.4  # m around the robot that the shadow map covers: a plane further off would shade itself
    if grid:
        shadow = 7.0  # but a height field shows specks along the map's border, so that it must hold the whole field
        width, height = (TEXELS * (count - 1) for count in (grid.columns, grid.rows))
        ground = (
            f'<texture name="ground" type="2d" builtin="flat" rgb1="0.5 0.5 0.5" width="{width}" height="{height}"/>'
            '<material name="ground" texture="ground" specular="0.05" shininess="0.05"/>'
            '<material name="hollows" rgba="0.36 0.33 0.30 1" specular="0"/>'
        )
    return f"""
  <visual>
    <global offwidth="1280" offheight="960" fovy="45"/>
    <map znear="0.02" zfar="40" shadowclip="{shadow}"/>
    <quality shadowsize="4096" offsamples="8"/>
    <headlight ambient="0.35 0.35 0.35" diffuse="0.35 0.35 0.35" specular="0.1 0.1 0.1"/>
    <rgba haze="0.8 0.86 0.92 1"/>
  </visual>
  <statistic center="0 0 0.3" extent="1"/>
  <asset>
    <texture name="sky" type="skybox" builtin="gradient" rgb1="0.55 0.7 0.86" rgb2="0.93 0.95 0.97" width="256" height="256"/>
    <texture name="tiles" type="2d" builtin="checker" rgb1="0.83 0.83 0.81" rgb2="0.78 0.78 0.77" width="512" height="512"
      mark="edge" markrgb="0.68 0.68 0.66"/>
    <material name="floor" texture="tiles" texrepeat="2 2" texuniform="true" reflectance="0.08" specular="0.2"/>
    <material name="plate" rgba="0.93 0.55 0.13 1" specular="0.4" shininess="0.5"/>
    <material name="motor" rgba="0.17 0.18 0.2 1" specular="0.5" shininess="0.6"/>
    <material name="shell" rgba="0.24 0.26 0.3 1" specular="0.5" shininess="0.6"/>
    <material name="rubber" rgba="0.08 0.08 0.08 1" specular="0.1"/>
    <material name="lamp" rgba="0.95 0.95 0.9 1" emission="0.4"/>
    {ground}
  </asset>
"""


def _shell() -> str:
    parts = [_box("drawn", box, f'material="{"shell" if place < 6 else "motor"}"') for place, box in enumerate(TORSO_BOXES)]
    parts.append(_box("drawn", ((0, 0, 0.0186), (0.03, 0.1, 0.002)), 'material="plate"'))
    parts.append(_box("drawn", ((0, 0.104, 0.02), (0.012, 0.035, 0.01)), 'material="plate"'))
    parts += [f'<geom class="drawn" type="sphere" size="0.006" pos="{x} 0.139 0.006" material="lamp"/>' for x in (-0.03, 0.03)]
    parts.append('<light name="sun" mode="trackcom" pos="0 0 2.5" dir="0 0 -1" directional="true" diffuse="0.55 0.55 0.55"/>')
    return "".join(parts)

"""Logging in through the form: a stranger waits, the person on call gets in, sessions are hard."""

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse

from controlplane.actions import people
from controlplane.actions.actor import SYSTEM
from controlplane.actions.signin import ACCOUNT_TRIES, DEVICE_COOKIE
from controlplane.models import Person
from tests import builders

pytestmark = pytest.mark.django_db

HOME, AWAY, STRANGER = "192.0.2.5", "198.51.100.7", "203.0.113.9"


@pytest.fixture(autouse=True)
def ann() -> Person:
    return builders.person("ann")


def enter(
    browser: Client, password: str = builders.PASSWORD, address: str = HOME
) -> tuple[int, int]:
    """(status, seconds to wait) of one try."""
    form = {"username": "ann", "password": password}
    answer = browser.post(reverse("login"), form, REMOTE_ADDR=address)
    return answer.status_code, int(answer.get("Retry-After", 0))


def test_five_wrong_passwords_make_a_new_browser_wait_a_quarter_of_an_hour() -> None:
    browser = Client()
    assert [enter(browser, "guess", STRANGER)[0] for _ in range(ACCOUNT_TRIES)] == [401] * 5
    status, wait = enter(browser, address=STRANGER)
    assert (status, 840 < wait <= 900) == (429, True)
    # Neither another browser nor another address makes the account guessable.
    assert enter(Client(), address=AWAY)[0] == 429


def test_nobody_can_lock_out_the_browser_in_which_the_person_was() -> None:
    laptop = Client()
    assert enter(laptop)[0] == 302
    laptop.post(reverse("logout"))
    for _ in range(ACCOUNT_TRIES + 3):
        enter(Client(), "guess", STRANGER)
    assert enter(Client(), address=AWAY)[0] == 429
    assert enter(laptop, address=AWAY)[0] == 302
    assert laptop.get(reverse("wall")).status_code == 200


def test_the_cookies_cannot_be_read_by_scripts_or_sent_from_elsewhere() -> None:
    browser = Client()
    browser.get(reverse("login"))
    before = browser.cookies.get(settings.SESSION_COOKIE_NAME)
    enter(browser)
    for name in (settings.SESSION_COOKIE_NAME, DEVICE_COOKIE):
        cookie = browser.cookies[name]
        assert (bool(cookie["httponly"]), cookie["samesite"]) == (True, "Lax"), name
    assert before is None or before.value != browser.cookies[settings.SESSION_COOKIE_NAME].value


def test_a_new_session_has_a_new_key_and_another_password_ends_the_old() -> None:
    browser = Client()
    enter(browser)
    first = browser.cookies[settings.SESSION_COOKIE_NAME].value
    browser.post(reverse("logout"))
    enter(browser)
    assert browser.cookies[settings.SESSION_COOKIE_NAME].value != first
    assert browser.get(reverse("wall")).status_code == 200
    people.update(actor=SYSTEM, name="ann", password="another-long-password-8", now=builders.now())
    answer = browser.get(reverse("wall"))
    assert (answer.status_code, reverse("login") in answer["Location"]) == (302, True)


def test_a_log_in_from_elsewhere_is_not_followed_and_needs_its_own_form() -> None:
    strict = Client(enforce_csrf_checks=True)
    form = {"username": "ann", "password": builders.PASSWORD}
    assert strict.post(reverse("login"), form).status_code == 403
    answer = Client().post(reverse("login"), form | {"next": "https://evil.example/"})
    assert answer["Location"] == "/"

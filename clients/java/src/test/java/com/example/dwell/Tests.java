package com.example.dwell;

import java.util.List;
import java.util.Map;
import java.util.logging.Level;
import java.util.logging.Logger;

/** Runs all tests, or those whose names contain the argument. clients/run starts it. */
final class Tests {
    /** Held here, since the JDK forgets the level of a logger that nobody holds. */
    private static final Logger LOG = Logger.getLogger(Tests.class.getPackageName());

    private static int passed, failed;
    private static String wanted;

    private interface Test {
        void run() throws Exception;
    }

    private Tests() {}

    private static void test(String name, Test test) {
        if (!name.contains(wanted)) {
            return;
        }
        long began = System.nanoTime();
        try {
            test.run();
            passed++;
            System.out.printf("ok %s (%d ms)%n", name, (System.nanoTime() - began) / 1_000_000);
        } catch (Exception | AssertionError e) {
            failed++;
            System.out.println("FAILED " + name);
            e.printStackTrace(System.out);
        }
    }

    public static void main(String[] args) {
        wanted = args.length == 0 ? "" : args[0];
        LOG.setLevel(Level.OFF);
        for (Object vector : (List<?>) Lab.ask("/vectors", Map.of())) {
            Map<String, Object> name = Fields.of(vector).map();
            test((String) name.get("name"), () -> Conformance.play(name));
        }
        test("ids are unique and count up in runs", Units::idsAreUniqueAndCountUpInRuns);
        test("a run of ids ends with its time", Units::aRunOfIdsEndsWithItsTime);
        test("a decision waits for no other", Units::aDecisionWaitsForNoOther);
        test(
                "a request has one verb, and what was decided first",
                Units::aRequestHasOneVerbAndWhatWasDecidedFirst);
        test(
                "a request has at most a hundred decisions",
                Units::aRequestHasAtMostAHundredDecisions);
        test("JSON is read as it was written", Units::jsonIsReadAsItWasWritten);
        test("what is not JSON is refused", Units::whatIsNotJsonIsRefused);
        test("addresses and headers are checked", Units::addressesAndHeadersAreChecked);
        test("answers of every form are read", Units::answersOfEveryFormAreRead);
        test("an answer that is none is not taken", Units::anAnswerThatIsNoneIsNotTaken);
        test("a long stack is that of the first cause", Units::aLongStackIsThatOfTheFirstCause);
        test("wrong arguments are refused", Units::argumentsThatNoBrokerAcceptsAreRefused);
        test(
                "what takes turns in a group may be absent or new",
                Units::whatTakesTurnsInAGroupMayBeAbsentOrNew);
        test("the limits of a key may be absent", Units::theLimitsOfAKeyMayBeAbsent);
        test("empty maps of a group are sent", Units::emptyMapsOfAGroupAreSent);
        test("nothing is lost without faults", () -> Brokers.story("calm", 0));
        test("nothing is lost when the broker is killed", () -> Brokers.story("kills", 4));
        test("nothing is lost when the broker is restarted", () -> Brokers.story("restarts", 4));
        test("nothing is lost when Redis is killed", () -> Brokers.story("outages", 4));
        test(
                "nothing is lost when one of two brokers is killed",
                () -> Brokers.story("brokers", 4));
        test("messages are pushed, changed and found", Brokers::messagesArePushedChangedAndFound);
        test(
                "payloads arrive as they were pushed",
                () -> Brokers.payloadsArriveAsTheyWerePushed("restarts"));
        test("payloads arrive over TLS", () -> Brokers.payloadsArriveAsTheyWerePushed("tls"));
        test(
                "pushes carry the context of the supplier",
                Brokers::pushesCarryTheContextOfTheSupplier);
        test(
                "a push that is cancelled early is not sent",
                Brokers::aPushThatIsCancelledBeforeItBeganIsNotSent);
        test("an interrupt ends the repeats of a call", Brokers::anInterruptEndsTheRepeatsOfACall);
        test(
                "an interrupt stops a worker, which waits for its handlers",
                Brokers::anInterruptStopsAWorkerWhichWaitsForItsHandlers);
        test("a signal lets handlers end", Brokers::aSignalLetsHandlersEnd);
        test("a reminder of 30 days", Clock::aReminderOf30Days);
        test("a ladder of retries over three hours", Clock::aLadderOfRetriesOverThreeHours);
        test("a cron job of next March", Clock::aCronJobOfNextMarch);
        test("program: a thousand messages are pushed", Programs::aThousandMessagesArePushed);
        test("program: half of the messages is cancelled", Programs::halfOfTheMessagesIsCancelled);
        test("program: a worker fails", Programs::aWorkerFails);
        test("program: a worker stops gracefully", Programs::aWorkerStopsGracefully);
        test("program: the clock is moved", Programs::theClockIsMoved);
        test(
                "README: the snippets do what they say",
                Programs::theSnippetsOfTheReadmeDoWhatTheySay);
        System.out.printf("java: %d tests passed, %d failed%n", passed, failed);
        System.exit(failed == 0 ? 0 : 1);
    }
}
